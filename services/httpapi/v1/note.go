package v1

import (
	"context"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// kinds of requests whose rates are counted apart.
const (
	kindTurn    = "turn"
	kindContext = "context"
)

// noteSession puts the id of a session into the call's log line.
func noteSession(ctx context.Context, id string) { wire.CallOf(ctx).Note("session_id", id) }

// note puts into the call's log line what an answer rests on, where there is any.
func note(ctx context.Context, at events.Position, from services.Source, turns int) {
	c := wire.CallOf(ctx)
	if at.Seq > 0 {
		c.Note("position", at)
	}
	if from != "" {
		c.Note("source", string(from))
	}
	if turns > 0 {
		c.Note("turns", turns)
	}
}

func noteTurns(ctx context.Context, n int) { note(ctx, events.Position{}, "", n) }

// prompted is what a prompt was built of.
type prompted struct {
	found           bool
	window, dropped int
}

// notePrompt makes the log line of a call that built a prompt one that is always written.
func notePrompt(ctx context.Context, turns int, p prompted) {
	c := wire.CallOf(ctx)
	c.Prominent()
	c.Note("turns", turns)
	c.Note("found", p.found)
	c.Note("window", p.window)
	c.Note("dropped", p.dropped)
}
