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
