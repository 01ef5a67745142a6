// Package presence lets the processes of a deployment tell each other, over NATS, which
// turns they are answering. Nothing is kept: a process that dies is silent at once.
package presence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/turnledger/turnledger/services/chat"
)

// Presence implements chat.Presence. Safe for concurrent use.
type Presence struct{ nc *nats.Conn }

var _ chat.Presence = (*Presence)(nil)

// New makes a presence; it does no I/O, and does not own the connection.
func New(nc *nats.Conn) *Presence { return &Presence{nc} }

func subject(turn uuid.UUID) string { return "turnledger.answering." + turn.String() }

// patience is how long somebody who answers a turn may take to say so.
const patience = time.Second

// Announce implements chat.Presence. What the caller publishes afterwards is seen after
// it, since NATS keeps a connection's order.
func (p *Presence) Announce(turn uuid.UUID) (leave func(), err error) {
	sub, err := p.nc.Subscribe(subject(turn), func(m *nats.Msg) { _ = m.Respond(nil) })
	if err != nil {
		return nil, fmt.Errorf("announce a turn: %w", err)
	}
	return func() { _ = sub.Unsubscribe() }, nil
}

// Present implements chat.Presence.
func (p *Presence) Present(ctx context.Context, turn uuid.UUID) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := p.nc.RequestWithContext(ctx, subject(turn), nil)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, nats.ErrNoResponders):
		return false, nil
	default:
		return false, fmt.Errorf("ask who answers a turn: %w", err)
	}
}
