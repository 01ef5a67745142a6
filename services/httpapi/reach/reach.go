// Package reach decides which sessions a caller reaches, and how often the caller may ask. The rules hold on every
// surface of a transport. A caller that is bound to an identity reaches the sessions that are linked to it. To such a
// caller any other session seems not to exist, even by the time that a refusal takes.
package reach

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// Across returns the identity that a call across sessions is about: that of a bound caller. Without any, the caller
// needs events:read, else context:read. Its errors are services.ErrOtherIdentity and *wire.MissingScopes.
func Across(caller access.Caller, asked string) (identityID string, err error) {
	if caller.IdentityID != "" {
		if asked != "" && asked != caller.IdentityID {
			return "", services.ErrOtherIdentity
		}
		asked = caller.IdentityID
	}
	needs := access.ContextRead
	if asked == "" {
		needs = access.EventsRead
	}
	// A caller without scopes is that of a server without authentication.
	if caller.Scopes != 0 && caller.Scopes&needs == 0 {
		return "", &wire.MissingScopes{Scopes: needs}
	}
	return asked, nil
}

// RateLimiter limits the rate of sessions and identities. A request of a kind that is refused may come again after
// wait. ByIdentity reports whether identities have a rate.
type RateLimiter interface {
	ByIdentity() bool
	Allow(kind, sessionID, identityID string) (wait time.Duration, ok bool)
}

// Rules limit requests to what their callers may reach. Safe for concurrent use.
type Rules struct {
	// LinkReader reads a session to find its identity. Without it, bound callers reach no session.
	LinkReader services.SessionReader
	// Limiter is nil if no rate is limited.
	Limiter RateLimiter
	// Deadline of one reading from LinkReader.
	Deadline time.Duration
	// RefusalTime is how long a refusal by Session takes, whether the session exists or not. It should be longer than
	// reading a session takes.
	RefusalTime time.Duration
	// owners are the identities of the sessions that were looked up already; nil: none is kept.
	owners *sync.Map
}

// Once returns the same rules for one call about many sessions, which look up the identity of each session once.
func (r Rules) Once() Rules {
	r.owners = new(sync.Map)
	return r
}

// Request is what a caller asks to be let in with.
type Request struct {
	// Kind of the request: each has rates of its own.
	Kind string
	// Bound is the identity that the caller is bound to, or "".
	Bound string
	// SessionID is the session that the request is about, or "".
	SessionID string
	// IdentityID is the identity that the request names, or "".
	IdentityID string
}

// Admit lets a request in before any work is done for it: first by what its caller reaches, as Session, and then by the
// rate of the session and of its identity, as Rate. So a caller that does not reach a session charges nobody, and
// learns nothing of it.
func (r Rules) Admit(ctx context.Context, of Request) error {
	if of.SessionID != "" {
		if err := r.Session(ctx, of.Bound, of.SessionID); err != nil {
			return err
		}
	}
	return r.Rate(ctx, of.Kind, of.SessionID, of.IdentityID)
}

// Session returns services.ErrNoSession if a caller that is bound to identityID may not know of a session: the session is linked
// to another identity, anonymous, or missing. A link is for ever, so a permission stays true.
func (r Rules) Session(ctx context.Context, identityID, sessionID string) error {
	if identityID == "" {
		return nil
	}
	began := time.Now()
	linked, err := r.identityOf(ctx, sessionID)
	switch {
	case err != nil:
		return err
	case linked == identityID:
		return nil
	}
	if err := even(ctx, began, r.RefusalTime); err != nil {
		return err
	}
	return services.ErrNoSession
}

// identityOf returns the identity that a session is linked to, or "".
func (r Rules) identityOf(ctx context.Context, sessionID string) (string, error) {
	if events.ValidID(sessionID) != nil || r.LinkReader == nil {
		return "", nil
	}
	if r.owners != nil {
		if owner, known := r.owners.Load(sessionID); known {
			return owner.(string), nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, r.Deadline)
	defer cancel()
	reading, err := r.LinkReader.Read(ctx, services.Ask{SessionID: sessionID, Own: true})
	if err != nil {
		return "", err
	}
	if r.owners != nil {
		r.owners.Store(sessionID, reading.State.Identity)
	}
	return reading.State.Identity, nil
}

// even waits until a whole number of steps has passed since a refusal began. Looking up an existing session takes
// longer than looking up a missing one. Without the wait, a refused caller could measure which it was.
func even(ctx context.Context, began time.Time, step time.Duration) error {
	if !pause.For(ctx, step-time.Since(began)%step) {
		return ctx.Err()
	}
	return nil
}

// Rate returns *services.TooOften if a request of a kind comes too soon; it is called before any work is done for the request.
// The rate that counts is that of the session's linked identity, or, without a link, that of the identity in the
// request. (Otherwise a caller could escape its rate by naming another identity each time.)
func (r Rules) Rate(ctx context.Context, kind, sessionID, identityID string) error {
	if r.Limiter == nil {
		return nil
	}
	if sessionID != "" && r.LinkReader != nil && r.Limiter.ByIdentity() {
		owner, err := r.identityOf(ctx, sessionID)
		if err != nil {
			return err
		}
		identityID = cmp.Or(owner, identityID)
	}
	if wait, ok := r.Limiter.Allow(kind, sessionID, identityID); !ok {
		return &services.TooOften{Wait: wait}
	}
	return nil
}
