package projections

import (
	"context"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
)

// Erasures knows which identities were erased; jetlog.Log implements it.
type Erasures interface {
	IdentityErasure(
		ctx context.Context, identityID string, upTo events.Position,
	) (*events.IdentityErased, events.Position, error)
	IdentityErasedNow(ctx context.Context, identityID string) (*events.IdentityErased, error)
}

// ErasureCheck hides the texts of erased identities. Every read of texts asks it, since the log and the views may
// record the erasures of the identity's sessions only later.
type ErasureCheck struct{ Log Erasures }

// Session closes a session if its identity was erased before a position. The position must be behind all that was
// acknowledged before the read.
func (g ErasureCheck) Session(ctx context.Context, state *session.State, at events.Position) error {
	if state.Identity == "" || state.Erased != 0 {
		return nil
	}
	erased, _, err := g.Log.IdentityErasure(ctx, state.Identity, at)
	if err == nil && erased != nil {
		state.Forget()
	}
	return err
}

// Unerased calls read, and returns its result unless the identity was erased by then. With an empty identityID
// it only calls read.
func Unerased[T any](ctx context.Context, g ErasureCheck, identityID string, read func() (T, error)) (T, error) {
	var nothing T
	out, err := read()
	if err != nil || identityID == "" {
		return out, err
	}
	if erased, err := g.Log.IdentityErasedNow(ctx, identityID); err != nil || erased != nil {
		return nothing, err
	}
	return out, nil
}
