package v1

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
)

// public calls are answered to anybody. They stand at the root (CONTRACT §2) and know no user: health, metrics, the
// description of the API.
const public = access.Scopes(1 << 7)

// noSession is said of every session that a caller may not know of.
func noSession() error {
	return newProblem(conversation.CodeSessionNotFound, "there is no such session")
}

// noIdentity is said of every identity but a bound caller's own.
func noIdentity() error { return newProblem(codeNotFound, "there is no such identity") }

// admit lets a request through to its handler, or says why not. Every request passes
// here before its body is read.
func (a *API) admit(r *http.Request, t route) error {
	switch {
	case t.needs == public:
		return nil
	case t.needs == 0:
		return newProblem(codeForbidden, "nobody may make this call: it was declared without a scope")
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
	callOf(r.Context()).caller = caller
	if missing := t.needs &^ caller.Scopes; missing != 0 {
		return newProblem(codeForbidden, "the key lacks the scope "+strings.Join(missing.Names(), ", "))
	}
	if caller.IdentityID == "" {
		return nil
	}
	return a.within(r, t, caller.IdentityID)
}

// stillMay tells of a call that goes on whether its caller would still be let in.
func (a *API) stillMay(h http.Header, needs access.Scopes) func(context.Context) error {
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

// bearer takes the token from its header; of two, neither is meant.
func bearer(h http.Header) (string, bool) {
	values := h["Authorization"]
	if len(values) != 1 {
		return "", false
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	token = strings.TrimSpace(token)
	return token, strings.EqualFold(scheme, "Bearer") && token != ""
}

// within holds what a path names against the identity that a caller is bound to. A call
// whose path names neither a session nor an identity is not for such callers, unless it
// says that it bounds them itself.
func (a *API) within(r *http.Request, t route, identity string) error {
	named := t.bounds
	for _, s := range t.segments {
		var err error
		switch s {
		case "{session_id}":
			err = a.reach(r.Context(), r.PathValue("session_id"))
		case "{identity_id}":
			if r.PathValue("identity_id") != identity {
				err = noIdentity()
			}
		default:
			continue
		}
		if named = true; err != nil {
			return err
		}
	}
	if !named {
		return newProblem(codeForbidden, "a key that is bound to an identity can't make this call")
	}
	return nil
}

// reach says noSession of a session that the caller may not know of: another's, an
// anonymous one, or none. A link is for ever, so that what is found stays true.
func (a *API) reach(ctx context.Context, sessionID string) error {
	identity := callOf(ctx).caller.IdentityID
	if identity == "" {
		return nil
	}
	began := time.Now()
	owner, err := a.ownerOf(ctx, sessionID)
	switch {
	case err != nil:
		return err
	case owner == identity:
		return nil
	}
	if err := even(ctx, began, a.cfg.RefusalTime); err != nil {
		return err
	}
	return noSession()
}

// ownerOf gives the identity that a session is linked to, or "".
func (a *API) ownerOf(ctx context.Context, sessionID string) (string, error) {
	if events.ValidID(sessionID) != nil || a.cfg.Owners == nil {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Deadline)
	defer cancel()
	reading, err := a.cfg.Owners.Read(ctx, services.Ask{SessionID: sessionID})
	if err != nil {
		return "", err
	}
	return reading.State.Identity, nil
}

// even waits until a whole number of steps has passed since a refusal was begun. A session
// that there is takes longer to look up than one that there is not; who is refused both
// could tell them apart by a clock.
func even(ctx context.Context, began time.Time, step time.Duration) error {
	timer := time.NewTimer(step - time.Since(began)%step)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// identityMembers are the members of bodies that name an identity.
var identityMembers = []string{"identity_id", "user_id"}

// speaksForItself refuses a body in which a bound caller names another identity.
func speaksForItself(ctx context.Context, b bodied) error {
	identity := callOf(ctx).caller.IdentityID
	if identity == "" {
		return nil
	}
	for _, name := range identityMembers {
		if sent := b.text(name); sent != "" && sent != identity {
			return newProblem(codeForbidden, name+" is another identity than the key is bound to")
		}
	}
	return nil
}
