// Package reach says which sessions a caller reaches, and how often one may ask: the rules that hold on every
// surface of a transport. A caller that is bound to an identity reaches the sessions that are linked to it; any
// other session looks like one that does not exist, also by a clock.
package reach

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/services"
)

// ErrNoSession is said of every session that a caller may not know of.
var ErrNoSession = errors.New("there is no such session")

// TooOften says that a session or an identity asks too often, and when it may come again.
type TooOften struct{ Wait time.Duration }

// Error says what to do.
func (e *TooOften) Error() string {
	return "the session or the identity asks too often: come again when the header Retry-After says so"
}

// RateLimiter holds sessions and identities to a rate. A request of a kind that may not go on may
// come again after wait. ByIdentity reports whether identities have a rate.
type RateLimiter interface {
	ByIdentity() bool
	Allow(kind, sessionID, identityID string) (wait time.Duration, ok bool)
}

// Rules hold requests to what their callers may reach. Safe for concurrent use.
type Rules struct {
	// Owners reads the identity of a session. Without it, bound callers reach no session.
	Owners services.SessionReader
	// Limiter is nil where no rate is limited.
	Limiter RateLimiter
	// Deadline of a reading by Owners.
	Deadline time.Duration
	// RefusalTime is how long a refusal by Session takes, whether the session exists or not. It should be more
	// than the reading of a session takes.
	RefusalTime time.Duration
}

// Session returns ErrNoSession where a caller that is bound to identityID may not know of a session: it is linked to
// another identity, anonymous, or does not exist. A link is for ever, so that the answer stays true.
func (r Rules) Session(ctx context.Context, identityID, sessionID string) error {
	if identityID == "" {
		return nil
	}
	began := time.Now()
	owner, err := r.owner(ctx, sessionID)
	switch {
	case err != nil:
		return err
	case owner == identityID:
		return nil
	}
	if err := even(ctx, began, r.RefusalTime); err != nil {
		return err
	}
	return ErrNoSession
}

// owner returns the identity that a session is linked to, or "".
func (r Rules) owner(ctx context.Context, sessionID string) (string, error) {
	if events.ValidID(sessionID) != nil || r.Owners == nil {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.Deadline)
	defer cancel()
	reading, err := r.Owners.Read(ctx, services.Ask{SessionID: sessionID})
	if err != nil {
		return "", err
	}
	return reading.State.Identity, nil
}

// even waits until a whole number of steps has passed since a refusal was begun. A session that
// exists takes longer to look up than one that does not. Without the wait, a caller that is refused
// could measure which of the two it was.
func even(ctx context.Context, began time.Time, step time.Duration) error {
	if !pause.For(ctx, step-time.Since(began)%step) {
		return ctx.Err()
	}
	return nil
}

// Rate returns *TooOften for a request of a kind that comes too soon, before anything is done for it. The identity
// whose rate counts is the one that the session is linked to, or, without a link, the one that the request names.
// (A caller could otherwise name another identity each time, and would have no rate.)
func (r Rules) Rate(ctx context.Context, kind, sessionID, identityID string) error {
	if r.Limiter == nil {
		return nil
	}
	if sessionID != "" && r.Owners != nil && r.Limiter.ByIdentity() {
		owner, err := r.owner(ctx, sessionID)
		if err != nil {
			return err
		}
		identityID = cmp.Or(owner, identityID)
	}
	if wait, ok := r.Limiter.Allow(kind, sessionID, identityID); !ok {
		return &TooOften{wait}
	}
	return nil
}
