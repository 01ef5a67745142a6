package v1

import (
	"cmp"
	"context"
)

// kinds of requests whose rates are counted apart.
const (
	kindTurn    = "turn"
	kindContext = "context"
)

// limited refuses a request that comes too soon. Nothing has been done for it then. The
// identity is that of the session's link, and the one that the request names where there
// is none: else who names others would never be held to a rate.
func (a *API) limited(ctx context.Context, kind, sessionID, identityID string) error {
	if a.cfg.Limiter == nil {
		return nil
	}
	if sessionID != "" && a.cfg.Owners != nil && a.cfg.Limiter.ByIdentity() {
		owner, err := a.ownerOf(ctx, sessionID)
		if err != nil {
			return err
		}
		identityID = cmp.Or(owner, identityID)
	}
	wait, ok := a.cfg.Limiter.Allow(kind, sessionID, identityID)
	if ok {
		return nil
	}
	p := newProblem(codeRateLimited, "the session or the identity asks too often: come again when the header Retry-After says so")
	p.after = wait
	return p
}

// enter takes a place among the requests that are answered at once; leave gives it back.
// What is public takes none: probes must be answered when all else is refused. Who a
// caller is has been asked by then, so that strangers can't take the places.
func (a *API) enter(t route) (leave func(), err error) {
	places := a.requests
	switch {
	case t.needs == public:
		return func() {}, nil
	case t.long:
		places = a.streaming
	}
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	default:
		return nil, newProblem(codeOverloaded, "as many requests are under way as may be: come again when the header Retry-After says so")
	}
}
