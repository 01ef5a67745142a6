package recent

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"

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

// buffer makes canonical forms: lengths before texts, so that no two things have the
// same. It is used again.
type buffer []byte

func (b *buffer) sum() Digest {
	sum := sha256.Sum256(*b)
	return Digest(sum[:16])
}

// question digests the half of a turn that its start gave.
func (b *buffer) question(t *conversation.Turn) Digest {
	q := t.Question
	*b = append((*b)[:0], t.ID[:]...)
	*b = append(*b, t.Replaces[:]...)
	b.numbers(t.Place, t.Started, uint64(t.Version)) //nolint:gosec // counts up from 1
	b.time(t.CreatedAt)
	b.flag(t.TranslateChat)
	for _, s := range []string{t.RequestID, q.PipelineName, q.Consultant, q.Repository, q.QuestionNeutral,
		q.QuestionTranslated} {
		text(b, s)
	}
	text(b, q.QuestionMessages)
	text(b, q.Metadata)
	return b.sum()
}

// answered lays the half that the answer gave over the digest of the other.
func (b *buffer) answered(question Digest, t *conversation.Turn) Digest {
	a := t.Answer
	*b = append((*b)[:0], question[:]...)
	b.numbers(t.Final)
	b.time(t.FinalizedAt)
	b.flag(a.AnswerTranslatedIsFallback)
	text(b, a.AnswerNeutral)
	text(b, a.AnswerTranslated)
	text(b, a.AnswerMessages)
	text(b, t.AnswerMetadata)
	return b.sum()
}

func (b *buffer) head(h conversation.Head) Digest {
	*b = (*b)[:0]
	text(b, h.Identity)
	b.numbers(h.LinkedAt, h.Boundary, h.ResetAt, h.Erased)
	for _, t := range []time.Time{h.CreatedAt, h.LastActive, h.ErasedAt} {
		b.time(t)
	}
	for _, n := range []int{h.Finalized, h.Pending, h.ShownFinalized, h.ShownPending} {
		*b = binary.AppendVarint(*b, int64(n))
	}
	return b.sum()
}

func (b *buffer) numbers(numbers ...uint64) {
	for _, n := range numbers {
		*b = binary.AppendUvarint(*b, n)
	}
}

func (b *buffer) time(t time.Time) {
	*b = binary.AppendVarint(binary.AppendVarint(*b, t.Unix()), int64(t.Nanosecond()))
}

func (b *buffer) flag(v bool) {
	n := byte(0)
	if v {
		n = 1
	}
	*b = append(*b, n)
}

func text[T ~string | ~[]byte](b *buffer, s T) {
	*b = append(binary.AppendUvarint(*b, uint64(len(s))), s...)
}
