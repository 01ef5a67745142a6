package recent

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/turnledger/turnledger/events/session"
)

// Digest of what a view must hold: the first 16 bytes of a SHA-256.
type Digest [16]byte

// String returns the first half in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:8]) }

// TurnDigest returns the digest of a turn as views hold it.
func TurnDigest(t *session.Turn) Digest {
	var b buffer
	return b.whole(t)
}

// whole returns the digest of a turn, with its answer if it has one.
func (b *buffer) whole(t *session.Turn) Digest {
	d := b.question(t)
	if t.Status == session.Finalized {
		d = b.answered(d, t)
	}
	return d
}

// HeadDigest returns the digest of a session without its turns.
func HeadDigest(h session.Head) Digest {
	var b buffer
	return b.head(h)
}

// buffer makes digests of records. A length precedes each text, so that different records have different bytes. The
// buffer is reused.
type buffer []byte

func (b *buffer) sum() Digest {
	sum := sha256.Sum256(*b)
	return Digest(sum[:16])
}

// question returns the digest of a turn's question half.
func (b *buffer) question(t *session.Turn) Digest {
	*b = appendStart((*b)[:0], pending, t)
	return b.sum()
}

// answered combines the digest of the question half with the answer half.
func (b *buffer) answered(question Digest, t *session.Turn) Digest {
	*b = appendAnswer(append((*b)[:0], question[:]...), t)
	return b.sum()
}

func (b *buffer) head(h session.Head) Digest {
	*b = AppendHead((*b)[:0], h)
	return b.sum()
}
