package v1

import (
	"context"
	"net"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// surface is the native API.
type surface struct {
	cfg    Config
	wire   *wire.API
	spec   huma.API
	routes []wire.Route
	// role, while it is not empty, answers the calls that are added, in other processes.
	role string
}

// Form is how the surface refuses, without its routes.
func Form() wire.Surface {
	return wire.Surface{
		Prefixes: []string{"/"},
		Refuse:   func(w http.ResponseWriter, _ *http.Request, err error) { problemOf(err).write(w) },
		Tell:     func(err error) string { return tellable(problemOf(err)) },
	}
}

// Mount adds the native surface to an API; it does no I/O.
func Mount(api *wire.API, cfg Config) {
	cfg = cfg.withDefaults()
	a := &surface{cfg: cfg, wire: api, spec: newSpec(cfg.Version)}
	a.declare()
	a.document()
	s := Form()
	s.Routes = a.routes
	api.Mount(s)
}

// ofRole adds the calls of a role, or notes that they are answered elsewhere.
func (a *surface) ofRole(role string, here bool, add func()) {
	if !here {
		a.role = role
	}
	add()
	a.role = ""
}

// owned returns what holds a path against the identity that a caller is bound to; nil where the
// path names neither a session nor an identity, unless the call bounds its callers by itself.
func (a *surface) owned(path string, bounds bool) func(*http.Request, string) error {
	session, identity := strings.Contains(path, "{session_id}"), strings.Contains(path, "{identity_id}")
	if !session && !identity && !bounds {
		return nil
	}
	return func(r *http.Request, own string) error {
		if identity && r.PathValue("identity_id") != own {
			return noIdentity()
		}
		if session {
			return a.cfg.Session(r.Context(), own, r.PathValue("session_id"))
		}
		return nil
	}
}

// noIdentity is said of every identity but a bound caller's own.
func noIdentity() error { return newProblem(notThere, "there is no such identity") }

// bound returns the identity that the caller is bound to, or "".
func bound(ctx context.Context) string { return wire.CallOf(ctx).Caller.IdentityID }

// reach refuses a session that the caller may not know of.
func (a *surface) reach(ctx context.Context, sessionID string) error {
	return a.cfg.Session(ctx, bound(ctx), sessionID)
}

// source returns where a request came from without naming it, for the security audit.
func (a *surface) source(ctx context.Context) string {
	host, _, err := net.SplitHostPort(wire.CallOf(ctx).Remote)
	if err != nil {
		return ""
	}
	return events.HashIP(a.cfg.HashKey, host)
}

// identityMembers are the members of bodies that name an identity.
var identityMembers = []string{"identity_id", "user_id"}

// speaksForItself refuses a body in which a bound caller names another identity.
func speaksForItself(ctx context.Context, body reflect.Value, known members) error {
	own := bound(ctx)
	if own == "" {
		return nil
	}
	for _, name := range identityMembers {
		i, ok := known[name]
		if !ok {
			continue
		}
		// A member that was not sent is "" or nil.
		if v := reflect.Indirect(body.Field(i)); v.IsValid() && v.String() != "" && v.String() != own {
			return newProblem(forbidden, name+" is another identity than the key is bound to")
		}
	}
	return nil
}

// kinds of requests whose rates are counted apart.
const (
	kindTurn    = "turn"
	kindContext = "context"
)

// noteSession puts the id of a session into the call's log line.
func noteSession(ctx context.Context, id string) { wire.CallOf(ctx).Note("session_id", id) }

// note puts into the call's log line what an answer rests on, where there is any.
func note(ctx context.Context, at events.Position, from services.Source, turns int) {
	c := wire.CallOf(ctx)
	if at.Seq > 0 {
		c.Note("position", at)
	}
	if from != "" {
		c.Note("source", string(from))
	}
	if turns > 0 {
		c.Note("turns", turns)
	}
}

func noteTurns(ctx context.Context, n int) { note(ctx, events.Position{}, "", n) }

// prompted is what a prompt was built of.
type prompted struct {
	found           bool
	window, dropped int
}

// notePrompt makes the log line of a call that built a prompt one that is always written.
func notePrompt(ctx context.Context, turns int, p prompted) {
	c := wire.CallOf(ctx)
	c.Prominent()
	c.Note("turns", turns)
	c.Note("found", p.found)
	c.Note("window", p.window)
	c.Note("dropped", p.dropped)
}
