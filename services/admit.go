package services

import (
	"cmp"
	"context"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/services/access"
)

// Across returns the identity that a call across sessions is about: that of a bound caller. Without any, the caller
// needs events:read, else context:read. Its errors are ErrOtherIdentity and *access.MissingScopes.
func Across(ctx context.Context, asked string) (identityID string, err error) {
	caller := access.CallOf(ctx).Caller
	if caller.IdentityID != "" {
		if asked != "" && asked != caller.IdentityID {
			return "", ErrOtherIdentity
		}
		asked = caller.IdentityID
	}
	needs := access.ContextRead
	if asked == "" {
		needs = access.EventsRead
	}
	// A caller without scopes is that of a server without authentication.
	if caller.Scopes != 0 && caller.Scopes&needs == 0 {
		return "", &access.MissingScopes{Scopes: needs}
	}
	return asked, nil
}

// RateLimiter limits the rate of sessions and identities. A request of a kind that is refused may come again after
// wait. ByIdentity reports whether identities have a rate.
type RateLimiter interface {
	ByIdentity() bool
	Allow(kind, sessionID, identityID string) (wait time.Duration, ok bool)
}

// Rules limit calls to what their callers may reach, and how often. They hold on every surface: a caller that is bound
// to an identity reaches the sessions that are linked to it. To such a caller any other session seems not to exist,
// even by the time that a refusal takes. Safe for concurrent use.
type Rules struct {
	// LinkReader reads a session to find its identity. Without it, bound callers reach no session.
	LinkReader SessionReader
	// Limiter is nil if no rate is limited.
	Limiter RateLimiter
	// Deadline of a call, and of one reading from LinkReader.
	Deadline time.Duration
	// RefusalTime is how long a refusal by Reach takes, whether the session exists or not. It should be longer than
	// reading a session takes.
	RefusalTime time.Duration
}

// Kinds of calls that have a rate.
const (
	KindTurn    = "turn"
	KindContext = "context"
)

// Entry is what a call asks to be let in with.
type Entry struct {
	// Kind of the call, if it has a rate.
	Kind string
	// SessionID is the session that the call is about, or "".
	SessionID string
	// IdentityID is the identity that the call names, or "".
	IdentityID string
	// Begins: a bound caller may name a session that does not exist, which the call then begins, linked to the caller's
	// identity. decide.Start sees to the link.
	Begins bool
}

// Admit lets a call in before any work is done for it: first by what its caller reaches, then by the rate of the
// session and of its linked identity. So a caller that does not reach a session charges nobody, and learns nothing of
// it. No call that was not admitted is answered.
func (r Rules) Admit(ctx context.Context, e Entry) error {
	if err := r.reach(ctx, e.SessionID, e.Begins); err != nil {
		return err
	}
	if e.Kind != "" && r.Limiter != nil {
		if err := r.rate(ctx, e); err != nil {
			return err
		}
	}
	access.CallOf(ctx).Admitted = true
	return nil
}

// Reach returns ErrNoSession if the caller is bound and may not know of a session: the session is linked to another
// identity, anonymous, or missing. A link is for ever, so a permission stays true.
func (r Rules) Reach(ctx context.Context, sessionID string) error {
	return r.reach(ctx, sessionID, false)
}

// ReachOrBegin is Reach for a call that may begin the session, see Entry.Begins.
func (r Rules) ReachOrBegin(ctx context.Context, sessionID string) error {
	return r.reach(ctx, sessionID, true)
}

func (r Rules) reach(ctx context.Context, sessionID string, begins bool) error {
	own := access.CallOf(ctx).Caller.IdentityID
	if own == "" || sessionID == "" {
		return nil
	}
	began := time.Now()
	of, err := r.ownerOf(ctx, sessionID)
	switch {
	case err != nil:
		return err
	case of.identity == own, begins && of.unused:
		return nil
	}
	if err := even(ctx, began, r.RefusalTime); err != nil {
		return err
	}
	return ErrNoSession
}

// owner is the identity that a session is linked to, or "". unused: the log has nothing of the session.
type owner struct {
	identity string
	unused   bool
}

// ownerOf returns the owner of a session. It looks once in each call.
func (r Rules) ownerOf(ctx context.Context, sessionID string) (owner, error) {
	if events.ValidID(sessionID) != nil || r.LinkReader == nil {
		return owner{}, nil
	}
	owners := &access.CallOf(ctx).Owners
	if known, has := owners.Load(sessionID); has {
		return known.(owner), nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.Deadline)
	defer cancel()
	reading, err := r.LinkReader.Read(ctx, Ask{SessionID: sessionID, Own: true})
	if err != nil {
		return owner{}, err
	}
	st := reading.State
	of := owner{st.Identity, st.Applied == 0 && st.Erased == 0 && st.Identity == ""}
	owners.Store(sessionID, of)
	return of, nil
}

// even waits until a whole number of steps has passed since a refusal began. Looking up an existing session takes
// longer than looking up a missing one. Without the wait, a refused caller could measure which it was.
func even(ctx context.Context, began time.Time, step time.Duration) error {
	if !pause.For(ctx, step-time.Since(began)%step) {
		return ctx.Err()
	}
	return nil
}

// rate returns *TooOften if a call of a kind comes too soon. The rate that counts is that of the session's linked
// identity, or, without a link, that of the identity in the call. (Otherwise a caller could escape its rate by naming
// another identity each time.)
func (r Rules) rate(ctx context.Context, e Entry) error {
	if e.SessionID != "" && r.LinkReader != nil && r.Limiter.ByIdentity() {
		of, err := r.ownerOf(ctx, e.SessionID)
		if err != nil {
			return err
		}
		e.IdentityID = cmp.Or(of.identity, e.IdentityID)
	}
	if wait, ok := r.Limiter.Allow(e.Kind, e.SessionID, e.IdentityID); !ok {
		return &TooOften{wait}
	}
	return nil
}
