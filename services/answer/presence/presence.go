// Package presence lets the processes of a deployment tell each other over NATS which turns they are answering. A
// process that dies stops answering at once. A note decides which of several processes takes its turn over; there are
// 256 notes for all turns.
package presence

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services/answer"
)

// Presence implements answer.Presence. Safe for concurrent use.
type Presence struct {
	nc    *nats.Conn
	notes *jetlog.Notes
}

var _ answer.Presence = (*Presence)(nil)

// New makes a presence; it does no I/O, and does not own the connection.
func New(nc *nats.Conn, notes *jetlog.Notes) *Presence { return &Presence{nc, notes} }

func subject(turn uuid.UUID) string { return "turnledger.answering." + turn.String() }

// patience is how long Present waits for a process to say that it answers a turn.
const patience = time.Second

// Announce implements answer.Presence. Other processes see the announcement before anything that the caller publishes
// later, since NATS keeps a connection's order.
func (p *Presence) Announce(turn uuid.UUID, about func() answer.Answering) (leave func(), err error) {
	sub, err := p.nc.Subscribe(subject(turn), func(m *nats.Msg) { _ = m.Respond([]byte(told(about()))) })
	if err != nil {
		return nil, fmt.Errorf("announce a turn: %w", err)
	}
	return func() { _ = sub.Unsubscribe() }, nil
}

// Words of what a process says of an answer.
const (
	isHeard, isQueued = "heard", "queued"
	attempt           = "attempt="
)

func told(a answer.Answering) string {
	words := []string{attempt + a.Attempt}
	if a.Heard {
		words = append(words, isHeard)
	}
	if a.Queued {
		words = append(words, isQueued)
	}
	return strings.Join(words, " ")
}

func heard(said string) (a answer.Answering) {
	for word := range strings.FieldsSeq(said) {
		a.Heard, a.Queued = a.Heard || word == isHeard, a.Queued || word == isQueued
		if name, is := strings.CutPrefix(word, attempt); is {
			a.Attempt = name
		}
	}
	return a
}

// Present implements answer.Presence.
func (p *Presence) Present(ctx context.Context, turn uuid.UUID) (present bool, about answer.Answering, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m, err := p.nc.RequestWithContext(ctx, subject(turn), nil)
	switch {
	case err == nil:
		return true, heard(string(m.Data)), nil
	case errors.Is(err, nats.ErrNoResponders):
		return false, about, nil
	default:
		return false, about, fmt.Errorf("ask who answers a turn: %w", err)
	}
}

// note returns the key of the note with a turn's claims. Several turns share a note: a process whose claim fails
// because of another turn tries again.
func note(turn uuid.UUID) string { return "chat." + hex.EncodeToString(turn[:1]) }

// Claimed implements answer.Presence.
func (p *Presence) Claimed(ctx context.Context, turn uuid.UUID) (uint64, error) {
	var claimed bool
	return p.notes.Read(ctx, note(turn), &claimed)
}

// Claim implements answer.Presence.
func (p *Presence) Claim(ctx context.Context, turn uuid.UUID, since uint64) (bool, error) {
	_, err := p.notes.Write(ctx, note(turn), true, since)
	if errors.Is(err, jetlog.ErrConflict) {
		return false, nil
	}
	return err == nil, err
}
