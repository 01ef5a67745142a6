package projections

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/turnledger/turnledger/events"
)

// DeadLetter is an event that a projection could not apply: its position and the reason, never its text. It waits until
// it is retried with success, or dropped.
type DeadLetter struct {
	Projection string          `json:"projection"`
	Position   events.Position `json:"position"`
	EventID    string          `json:"event_id"`
	Type       string          `json:"type"`
	// SessionID is empty if the event is on no session's subject.
	SessionID string    `json:"session_id,omitempty"`
	Reason    string    `json:"reason"`
	Attempts  int       `json:"attempts"`
	ParkedAt  time.Time `json:"parked_at"`
	Dropped   *Drop     `json:"dropped,omitempty"`
}

// Drop says who dropped a dead letter, why, and when.
type Drop struct {
	Reason string    `json:"reason"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
}

// NewDeadLetter makes the letter of an event that was parked at a time.
func NewDeadLetter(projection string, e *Judged, reason string, at time.Time) DeadLetter {
	session := e.SessionID
	if !utf8.ValidString(session) { // such an id can't be stored
		session = ""
	}
	return DeadLetter{
		Projection: projection, Position: e.Position, EventID: Label(e.ID), Type: Label(e.Type), SessionID: session,
		Reason: BoundReason(reason), Attempts: 1, ParkedAt: at.UTC(),
	}
}

// MaxDeadLetters bounds the letters that a queue returns.
const MaxDeadLetters = 10_000

// DeadLetterQueue is what an operator can do with a projection's dead letters. Safe for concurrent use, also with the
// projection's runner.
type DeadLetterQueue interface {
	// Name of the projection.
	Name() string
	// DeadLetters returns the waiting and the dropped letters, the oldest first, at most MaxDeadLetters.
	DeadLetters(ctx context.Context) ([]DeadLetter, error)
	// RetryDeadLetter applies the event again, by the projection's own rules. Later events are applied already, so its
	// session is folded from the log again. If the event is applied, its letter is removed; if it is refused again, the
	// letter counts the attempt. It fails with ErrNoDeadLetter if there is no such letter.
	RetryDeadLetter(ctx context.Context, at events.Position) (Retried, error)
	// DropDeadLetter decides that the event stays out. The letter stays, with the person and the reason; it may still
	// be retried. It fails with ErrNoDeadLetter if there is no such letter.
	DropDeadLetter(ctx context.Context, at events.Position, d Drop) (DeadLetter, error)
}

// Retried is the result of a retry. If the event was refused again, the letter has the new reason.
type Retried struct {
	DeadLetter
	Applied bool
}

// LogReader reads the log for a retry. At returns one event; found is false if the event was erased.
type LogReader interface {
	SessionReader
	At(ctx context.Context, at events.Position) (e events.Recorded, found bool, err error)
}

// Label returns a word of an envelope for a place that may hold no text: the word itself if it looks like an id, a type
// or a hash, and otherwise its digest. A publisher may write anything into an envelope.
func Label(s string) string {
	if len(s) <= 256 && strings.IndexFunc(s, notOfLabels) < 0 {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:8])
}

func notOfLabels(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return !letter && !strings.ContainsRune("._:~=+/-", r)
}

// BoundReason makes an error's text fit for storage: valid UTF-8 without U+0000, at most about 1,000 bytes.
func BoundReason(s string) string {
	const most = 1000
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "… (" + strconv.Itoa(len(s)) + " bytes)"
	}
	return s
}
