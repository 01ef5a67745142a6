package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// Scopes are what a caller may do; a call needs one or more. The zero value is nothing,
// and a call that is declared with it is answered to nobody.
type Scopes uint8

// The scopes. None holds another: Admin looks after the system and reads no text.
const (
	TurnsWrite  Scopes = 1 << iota // record turns, link and reset sessions
	ContextRead                    // read sessions, turns and contexts
	EventsRead                     // read the log
	TurnsRedact                    // redact and erase
	Admin                          // views, dead letters

	// public calls are answered to anybody. They stand at the root (CONTRACT §2) and know
	// no user: health, metrics, the description of the API.
	public
)

// scopeNames are in the order of the bits.
var scopeNames = []string{"turns:write", "context:read", "events:read", "turns:redact", "admin"}

// ParseScopes reads names of scopes, such as turns:write.
func ParseScopes(names []string) (Scopes, error) {
	var out Scopes
	for _, name := range names {
		i := slices.Index(scopeNames, name)
		if i < 0 {
			return 0, fmt.Errorf("%q is no scope; there are %s", name, strings.Join(scopeNames, ", "))
		}
		out |= 1 << i
	}
	return out, nil
}

// Names are what ParseScopes reads.
func (s Scopes) Names() []string {
	var out []string
	for i, name := range scopeNames {
		if s&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return out
}

// Caller is whom a request comes from. Name tells callers apart in the log and is no
// secret. With an IdentityID the caller reaches only sessions that are linked to it;
// any other looks like one that does not exist.
type Caller struct {
	Name       string
	Scopes     Scopes
	IdentityID string
}

// Authenticator tells whose token it is. Its errors are those below, as they are or
// wrapped, and never hold the token. Safe for concurrent use.
type Authenticator interface {
	Authenticate(ctx context.Context, token string) (Caller, error)
}

// What an Authenticator may say.
var (
	ErrUnauthenticated = errors.New("send a valid key as Authorization: Bearer KEY (the command line takes it from TURNLEDGER_KEY); turnledger keys create makes one")
	ErrKeyEnded        = errors.New("the key has expired or was revoked: turnledger keys create makes another")
	ErrTokenEnded      = errors.New("the token has expired: get another one from its issuer")
	// ErrNoKeys: the token can't be checked, since its issuer has not told its keys yet.
	ErrNoKeys = errors.New("the issuer of tokens does not answer, so that they can't be checked: try again")
)

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
		return ErrUnauthenticated
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
func (a *API) stillMay(h http.Header, needs Scopes) func(context.Context) error {
	token, _ := bearer(h)
	return func(ctx context.Context) error {
		if a.cfg.Open {
			return nil
		}
		caller, err := a.cfg.Auth.Authenticate(ctx, token)
		if err == nil && caller.Scopes&needs != needs {
			err = ErrUnauthenticated
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
	reading, err := a.cfg.Owners.Read(ctx, Ask{SessionID: sessionID})
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
