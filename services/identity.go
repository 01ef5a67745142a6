package services

import (
	"context"
	"time"

	"github.com/turnledger/turnledger/events"
)

// IdentityAsk names a page of an identity's turns: at most Limit turns that were created at or
// after Since and before Until (zero: no bound), from where the cursor of the last page ends.
type IdentityAsk struct {
	IdentityID   string
	Since, Until time.Time
	Limit        int
	Cursor       string
	MinPosition  []events.Position
}

// IdentityPage is a page; NextCursor is empty at the end.
type IdentityPage struct {
	Turns      []Turn
	NextCursor string
}

// IdentityReader lists the turns of an identity across its sessions. Its errors are
// projections.ErrUnavailable, ErrPositionNotReached, and *conversation.Invalid for a cursor that
// it never returned.
type IdentityReader interface {
	IdentityTurns(ctx context.Context, ask IdentityAsk) (IdentityPage, error)
}
