package wire

import (
	"context"
	"net/http"
	"strings"

	"github.com/turnledger/turnledger/services/access"
)

// admit lets a request through to its handler, or returns why not. Every request passes here
// before its body is read.
func (a *API) admit(r *http.Request, t route) error {
	switch {
	case t.Public:
		return nil
	case t.Needs == 0:
		return ErrNoScope
	case a.cfg.Open:
		return nil
	}
	token, ok := bearer(r.Header)
	if !ok || a.cfg.Auth == nil {
		return access.ErrUnauthenticated
	}
	caller, err := a.cfg.Auth.Authenticate(r.Context(), token)
	if err != nil {
		return err
	}
	CallOf(r.Context()).Caller = caller
	switch missing := t.Needs &^ caller.Scopes; {
	case missing != 0:
		return &MissingScopes{missing}
	case caller.IdentityID == "":
		return nil
	case t.Own == nil:
		return ErrBound
	default:
		return t.Own(r, caller.IdentityID)
	}
}

// Still returns a function for calls that last long. It authenticates the caller again, and returns an error once
// the caller would not be let in any more.
func (a *API) Still(h http.Header, needs access.Scopes) func(context.Context) error {
	token, _ := bearer(h)
	return func(ctx context.Context) error {
		if a.cfg.Open {
			return nil
		}
		caller, err := a.cfg.Auth.Authenticate(ctx, token)
		if err == nil && caller.Scopes&needs != needs {
			err = access.ErrUnauthenticated
		}
		return err
	}
}

// bearer takes the token from its header. A request with two such headers has no token.
func bearer(h http.Header) (string, bool) {
	values := h["Authorization"]
	if len(values) != 1 {
		return "", false
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	token = strings.TrimSpace(token)
	return token, strings.EqualFold(scheme, "Bearer") && token != ""
}

// enter takes a place among the requests that are answered at the same time; leave frees it. A public
// call takes no place: probes must be answered when all else is refused. A caller is authenticated
// before enter, so that strangers can't take the places.
func (a *API) enter(t route) (leave func(), err error) {
	places := a.requests
	switch {
	case t.Public:
		return func() {}, nil
	case t.Long > 0:
		places = a.streams
	}
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	default:
		return nil, ErrOverloaded
	}
}
