package httpapi

// kinds of requests whose rates are counted apart.
const (
	kindTurn    = "turn"
	kindContext = "context"
)

// limited refuses a request that comes too soon. Nothing has been done for it then.
func (a *API) limited(kind, sessionID, identityID string) error {
	if a.cfg.Limiter == nil {
		return nil
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
