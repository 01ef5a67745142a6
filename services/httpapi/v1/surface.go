// Package v1 is the native surface of the HTTP API: its routes, the JSON of docs/contract.md#http, the checks of its
// bodies, what a bound caller may reach by a path, and one table from errors to RFC 9457 problems. It has no logic of
// its own: its answers come from the ports of its Config. Package wire has what every surface needs.
//
// No error, log line or metric holds a text that a client sent. huma only describes the calls and the schemas of their
// types; no request passes through it. Each parameter is read by its own type, and a body by decode, which names faulty
// fields but never their values. An answer is written only when its handler is done, so a graceful stop loses nothing
// acknowledged.
package v1

import (
	"cmp"
	"context"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/problems"
)

// surface is the native API.
type surface struct {
	cfg    Config
	wire   *wire.API
	spec   huma.API
	routes []wire.Route
	// role, if set, means that processes of this role answer the calls that are added next.
	role string
}

// Form returns the surface without its routes: it only refuses.
func Form() wire.Surface {
	return wire.Surface{
		Prefixes: []string{"/"},
		Refuse:   refuse,
		SafeText: safeText,
		Token:    tokenOf,
	}
}

// Mount adds the native surface to an API; it does no I/O.
func Mount(api *wire.API, cfg Config) {
	cfg.Ports, cfg.MaxBody = cfg.WithDefaults(), cmp.Or(cfg.MaxBody, defaultBody)
	cfg.MaxChatBody = cmp.Or(cfg.MaxChatBody, defaultChatBody)
	a := &surface{cfg: cfg, wire: api, spec: newSpec(cfg.Version)}
	a.declare()
	a.document()
	s := Form()
	s.Routes = a.routes
	api.Mount(s)
}

// ofRole adds the calls of a role, or notes that other processes answer them.
func (a *surface) ofRole(role string, here bool, add func()) {
	if !here {
		a.role = role
	}
	add()
	a.role = ""
}

// admits returns the Admit of a call. A bound caller is refused if the path names neither a session nor an identity,
// unless the call itself restricts bound callers.
func (a *surface) admits(op operation) func(*http.Request) error {
	session, identity := strings.Contains(op.Path, "{session_id}"), strings.Contains(op.Path, "{identity_id}")
	return func(r *http.Request) error {
		switch own := bound(r.Context()); {
		case op.later:
			return wire.ErrLater
		case own == "":
		case identity && r.PathValue("identity_id") != own:
			return noIdentity()
		case !session && !identity && !op.bounds:
			return wire.ErrBound
		}
		return a.cfg.Admit(r.Context(), services.Entry{
			SessionID: r.PathValue("session_id"), Begins: op.begins,
		})
	}
}

// noIdentity is the error for every identity except a bound caller's own.
func noIdentity() error {
	return problems.New(problems.CodeNotFound, "there is no such identity")
}

// bound returns the identity that the caller is bound to, or "".
func bound(ctx context.Context) string { return wire.CallOf(ctx).Caller.IdentityID }

// identityMembers are the names of body members that hold an identity.
var identityMembers = []string{"identity_id", "user_id"}

// speaksForItself refuses a body in which a bound caller names another identity.
func speaksForItself(ctx context.Context, body reflect.Value, known bodyFields) error {
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
		if v := reflect.Indirect(body.FieldByIndex(i)); v.IsValid() && v.String() != "" && v.String() != own {
			return problems.New(problems.CodeForbidden, name+" is another identity than the key is bound to")
		}
	}
	return nil
}

// noteSession puts the id of a session into the call's log line.
func noteSession(ctx context.Context, id string) { wire.CallOf(ctx).SetAttribute("session_id", id) }

// notePosition puts the position that an answer rests on into the call's log line, if there is one.
func notePosition(ctx context.Context, at events.Position) {
	if at.Seq > 0 {
		wire.CallOf(ctx).SetAttribute("position", at)
	}
}

// noteReading is notePosition, with what was read.
func noteReading(ctx context.Context, at events.Position, from services.Source) {
	notePosition(ctx, at)
	if from != "" {
		wire.CallOf(ctx).SetAttribute("source", string(from))
	}
}

// noteTurns puts the number of turns that were answered or written into the call's log line, if there are any.
func noteTurns(ctx context.Context, n int) {
	if n > 0 {
		wire.CallOf(ctx).SetAttribute("turns", n)
	}
}

// notePrompt notes the prompt that a call built. The log line of such a call is always written.
func notePrompt(ctx context.Context, turns int, found bool, window, dropped int) {
	c := wire.CallOf(ctx)
	c.Prominent()
	c.SetAttribute("turns", turns)
	c.SetAttribute("found", found)
	c.SetAttribute("window", window)
	c.SetAttribute("dropped", dropped)
}

// Config of the surface.
type Config struct {
	services.Ports

	// MetadataKeys, if set, are the metadata keys that views show; clients that fold the events themselves need them.
	MetadataKeys []string
	// ItemKey is the key of the ids of items, which backups hold.
	ItemKey string
	// Explain is nil in a process that does not read.
	Explain services.Explainer
	// Streams and Backups are nil in a process that does not manage the log.
	Streams StreamKeeper
	Backups Backups
	// MaxBody bounds the body of a request in bytes; 1 MiB by default.
	MaxBody int64
	// Responses answers chats of UI messages; nil in a process that asks no model. MaxChatBody bounds their bodies,
	// which may hold images; 16 MiB by default.
	Responses   services.Responder
	MaxChatBody int64
}

const defaultChatBody = 16 << 20

// defaultBody bounds a request's body (docs/contract.md#http).
const defaultBody = 1 << 20
