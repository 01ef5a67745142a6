package recent

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/turnledger/turnledger/events/conversation"
)

// Digest of what a view must hold: 16 bytes of a SHA-256.
type Digest [16]byte

// String returns the first half in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:8]) }

// TurnDigest is of a turn as views hold it.
func TurnDigest(t *conversation.Turn) Digest {
	var b buffer
	d := b.question(t)
	if t.Status == conversation.Finalized {
		d = b.answered(d, t)
	}
	return d
}

// HeadDigest is of what a session is without its turns.
func HeadDigest(h conversation.Head) Digest {
	var b buffer
	return b.head(h)
}

// buffer makes digests of records, which have lengths before texts, so that no two things
// have the same. It is used again.
type buffer []byte

func (b *buffer) sum() Digest {
	sum := sha256.Sum256(*b)
	return Digest(sum[:16])
}

// question digests the half of a turn that its start gave.
func (b *buffer) question(t *conversation.Turn) Digest {
	*b = appendStart((*b)[:0], pending, t)
	return b.sum()
}

// answered lays the half that the answer gave over the digest of the other.
func (b *buffer) answered(question Digest, t *conversation.Turn) Digest {
	*b = AppendAnswer(append((*b)[:0], question[:]...), t)
	return b.sum()
}

func (b *buffer) head(h conversation.Head) Digest {
	*b = AppendHead((*b)[:0], h)
	return b.sum()
}
