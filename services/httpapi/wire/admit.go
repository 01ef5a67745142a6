package wire

import (
	"context"
	"net/http"
	"strings"

	"github.com/turnledger/turnledger/services/access"
)

// admit returns nil if a request may proceed to its handler, or else the reason. It checks every request before its
// body is read.
func (a *API) admit(r *http.Request, t route) error {
	if t.Public {
		return nil
	}
	if err := a.authenticate(r, t); err != nil {
		return err
	}
	if t.Admit == nil {
		return ErrBound
	}
	err := t.Admit(r)
	if err == ErrLater { //nolint:errorlint // as Admit returns it
		return nil
	}
	access.CallOf(r.Context()).Admitted = err == nil
	return err
}

// authenticate finds the caller of a request, who must have the scopes of the route.
func (a *API) authenticate(r *http.Request, t route) error {
	if t.Needs|t.Any == 0 {
		return ErrNoScope
	}
	token, ok := CallOf(r.Context()).surface.token(r)
	if a.asksNobody(token) {
		return nil
	}
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
		return &access.MissingScopes{Scopes: missing}
	case t.Any != 0 && t.Any&caller.Scopes == 0:
		return &access.MissingScopes{Scopes: t.Any}
	default:
		return nil
	}
}

// asksNobody reports whether a request counts whoever sends it. A token that was made here counts as what it is, also
// where nobody needs a key.
func (a *API) asksNobody(token string) bool {
	_, made := access.TokenBody(token)
	return a.cfg.Open && !made
}

func (s *Surface) token(r *http.Request) (string, bool) {
	if s.Token != nil {
		return s.Token(r)
	}
	return Bearer(r.Header)
}

// Still returns a function for long calls. The function authenticates the caller again, and returns an error once the
// caller would no longer be admitted.
func (a *API) Still(r *http.Request, needs access.Scopes) func(context.Context) error {
	token, _ := CallOf(r.Context()).surface.token(r)
	return func(ctx context.Context) error {
		if a.asksNobody(token) {
			return nil
		}
		caller, err := a.cfg.Auth.Authenticate(ctx, token)
		if err == nil && caller.Scopes&needs != needs {
			err = access.ErrUnauthenticated
		}
		return err
	}
}

// Bearer returns the token in the header. A request with two such headers has no token.
func Bearer(h http.Header) (string, bool) {
	values := h["Authorization"]
	if len(values) != 1 {
		return "", false
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	token = strings.TrimSpace(token)
	return token, strings.EqualFold(scheme, "Bearer") && token != ""
}

// enter takes one of the places for concurrent requests; leave frees it. A public call takes no place, so that probes
// are answered even if all places are taken. A caller is authenticated before enter, so that strangers can't fill the
// places.
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
