package v1

import (
	"cmp"
	"context"
	"crypto/rand"
	"net"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/httpapi/reach"
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

// owned returns a function that checks whether a bound caller may reach what a path names. It returns nil if the path
// names neither a session nor an identity, unless the call limits bound callers by itself.
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

// notePrompt makes the log line of a call that built a prompt one that is always written.
func notePrompt(ctx context.Context, turns int, found bool, window, dropped int) {
	c := wire.CallOf(ctx)
	c.Prominent()
	c.Note("turns", turns)
	c.Note("found", found)
	c.Note("window", window)
	c.Note("dropped", dropped)
}

// Config of the surface. A process that does not write has neither Turns nor
// SessionWrites, one that does not read has neither Sessions nor Contexts; it then
// lacks those calls.
type Config struct {
	Turns         services.TurnWriter
	SessionWrites services.SessionWriter
	// Erasures and Receipts are nil in a process that knows of neither.
	Erasures services.ErasureWriter
	Receipts services.ReceiptReader
	// Retention is nil in a process that does not look after it.
	Retention services.Retention
	Sessions  services.SessionReader
	Contexts  services.ContextBuilder
	// Identities is nil where no Postgres is configured.
	Identities  services.IdentityReader
	Projections services.ProjectionReader
	// Chat is nil where no model is asked.
	Chat services.Chat
	// DeadLetters of the views that this process can look after.
	DeadLetters []projections.DeadLetterQueue
	// Events is nil in a process that does not read. MetadataKeys, where not nil, are the
	// keys that views show of metadata: a client that folds the events itself is told them.
	Events       services.EventReader
	MetadataKeys []string
	// Keeper is nil where no view can be rebuilt.
	Keeper services.ProjectionKeeper
	// Streams and Backups are nil where the log is nobody's to look after.
	Streams StreamKeeper
	Backups Backups
	// Rules hold callers to what they may reach; their Deadline, 30 s by default, is that of one call. RefusalTime is
	// 500 ms by default.
	reach.Rules
	// MaxBody bounds the body of a request in bytes; 1 MiB by default.
	MaxBody int64
	// Version stands in the description of the API.
	Version string
	// HashKey is the key of the hashes of addresses that go with refused links; by default
	// one that ends with the process.
	HashKey []byte
	Now     func() time.Time
}

// defaultBody bounds a request's body (docs/contract.md#http).
const defaultBody = 1 << 20

func (c Config) withDefaults() Config {
	c.Deadline = cmp.Or(c.Deadline, 30*time.Second)
	c.MaxBody = cmp.Or(c.MaxBody, defaultBody)
	c.RefusalTime = cmp.Or(c.RefusalTime, 500*time.Millisecond)
	c.Version = cmp.Or(c.Version, "dev")
	if len(c.HashKey) == 0 {
		c.HashKey = []byte(rand.Text())
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}
