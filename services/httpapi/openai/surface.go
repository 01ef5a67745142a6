package openai

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/openai/respond"
	"github.com/turnledger/turnledger/services/httpapi/reach"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/items"
)

// Config of the surface. In a process that does not write, Messages and Sessions' writers are nil.
type Config struct {
	Messages      services.MessageWriter
	SessionWrites services.SessionWriter
	Turns         services.TurnWriter
	// Lookup spares reads of whole sessions; nil in a process that does not write.
	Lookup services.TurnLookup
	// Erasures is nil in a process without erasures.
	Erasures services.ErasureWriter
	Sessions services.SessionReader
	// Lists is nil where no Postgres is configured.
	Lists services.SessionLister
	// SessionAt returns the session of the event at a position, or "" if there is none.
	SessionAt func(ctx context.Context, at events.Position) (string, error)
	// Partition returns the partition of a session.
	Partition func(sessionID string) int
	// Key makes the ids of items, and the digests by which a repeated call is known. All processes on a log need the
	// same one, for ever.
	Key []byte
	// Responses answers with a model; nil in a process without one. HostedTools: the model knows tools of its own.
	Responses   Responder
	HostedTools respond.HostedTools
	// OnPending applies to requests for responses that name none; Enqueue by default.
	OnPending services.OnPending
	// Models are the names of the models that answer.
	Models []string
	// Strict refuses what OpenAI refuses and this surface would take.
	Strict bool
	// MaxBody bounds the body of a request in bytes; 16 MiB by default.
	MaxBody int64
	// Source returns the hash of the caller's address, for the security audit; nil for none.
	Source func(ctx context.Context) string
	// Rules restrict callers to what they may reach. Their Deadline, 30 s by default, bounds one call.
	reach.Rules
	Now func() time.Time
}

// defaultBody bounds a request's body.
const defaultBody = 16 << 20

func (c Config) withDefaults() Config {
	c.Deadline = cmp.Or(c.Deadline, 30*time.Second)
	c.RefusalTime = cmp.Or(c.RefusalTime, 500*time.Millisecond)
	c.MaxBody = cmp.Or(c.MaxBody, defaultBody)
	c.OnPending = cmp.Or(c.OnPending, services.Enqueue)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Source == nil {
		c.Source = func(context.Context) string { return "" }
	}
	return c
}

// surface is OpenAI's API.
type surface struct {
	api    *wire.API
	cfg    Config
	ids    items.Minter
	began  time.Time
	routes []wire.Route
}

// Form returns the surface without its routes: it only refuses.
func Form() wire.Surface {
	return wire.Surface{
		Prefixes: prefixes(),
		Refuse:   refuse, SafeText: safeText, CORS: true,
	}
}

// Mount adds the surface to an API; it does no I/O.
func Mount(api *wire.API, cfg Config) {
	cfg = cfg.withDefaults()
	s := &surface{api: api, cfg: cfg, ids: items.Minter{Key: cfg.Key}, began: cfg.Now()}
	s.declare()
	form := Form()
	form.Routes = s.routes
	api.Mount(form)
}

// Paths of the routes.
const (
	conversations   = "/v1/conversations"
	oneConversation = conversations + "/{conversation_id}"
	itemsOfOne      = oneConversation + "/items"
	oneItem         = itemsOfOne + "/{item_id}"
	models          = "/v1/models"
)

// Names of roles whose processes answer.
const (
	writing = "api"
	reading = "context"
)

// declare adds the routes.
func (s *surface) declare() {
	writes, reads := s.cfg.Messages != nil, s.cfg.Sessions != nil
	own := s.ownConversation
	s.call(http.MethodPost, conversations, access.TurnsWrite, writes, writing, anybody, s.createConversation)
	s.call(http.MethodGet, oneConversation, access.ContextRead, reads, reading, own, s.getConversation)
	s.call(http.MethodPost, oneConversation, access.TurnsWrite, writes, writing, own, s.updateConversation)
	s.call(http.MethodDelete, oneConversation, access.TurnsRedact, s.cfg.Erasures != nil, writing, own,
		s.deleteConversation)
	s.call(http.MethodPost, itemsOfOne, access.TurnsWrite, writes, writing, own, s.createItems)
	s.call(http.MethodGet, itemsOfOne, access.ContextRead, reads, reading, own, s.listItems)
	s.call(http.MethodGet, oneItem, access.ContextRead, reads, reading, own, s.getItem)
	s.call(http.MethodDelete, oneItem, access.TurnsRedact, writes, writing, own, s.deleteItem)
	s.call(http.MethodGet, models, 0, writes || reads, "", anybody, s.listModels)
	s.call(http.MethodGet, models+"/{model}", 0, writes || reads, "", anybody, s.getModel)
	s.list(reads)
	s.declareResponses()
}

// list adds the list of conversations, which callers of two scopes may ask for.
func (s *surface) list(here bool) {
	s.call(http.MethodGet, conversations, 0, here, reading, anybody, s.listConversations)
	s.routes[len(s.routes)-1].Any = access.ContextRead | access.EventsRead
}

// mayReach says what a bound caller may reach, as in wire.Route.
type mayReach func(r *http.Request, identityID string) error

// anybody lets bound callers in: the call itself shows them no more than their own.
func anybody(*http.Request, string) error { return nil }

// ownConversation lets bound callers in if the conversation in the path is theirs.
func (s *surface) ownConversation(r *http.Request, identityID string) error {
	return s.cfg.Session(r.Context(), identityID, r.PathValue("conversation_id"))
}

// anyScope are all scopes: a call that needs none of them in particular is still none for strangers.
const anyScope = access.TurnsWrite | access.ContextRead | access.EventsRead | access.TurnsRedact | access.Admin

// call adds a call, which answers 200 with what answer returns, or notes that processes of another role answer it.
func (s *surface) call(
	method, path string, needs access.Scopes, here bool, role string, may mayReach,
	answer func(ctx context.Context, r *http.Request, h http.Header) (any, error),
) {
	t := wire.Route{Method: method, Path: path, Needs: needs, MayReach: may}
	if needs == 0 {
		t.Any = anyScope
	}
	if !here {
		t.Role = role
	}
	t.Handle = func(w http.ResponseWriter, r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), s.cfg.Deadline)
		defer cancel()
		out, err := answer(ctx, r, w.Header())
		if err != nil {
			return err
		}
		setRequestID(w.Header())
		wire.WriteJSON(w, http.StatusOK, out)
		return nil
	}
	s.routes = append(s.routes, t)
}

// caller names the caller in digests.
func caller(ctx context.Context) string {
	c := wire.CallOf(ctx).Caller
	return c.Name + "\x00" + c.IdentityID
}

// bound returns the identity that the caller is bound to, or "".
func bound(ctx context.Context) string { return wire.CallOf(ctx).Caller.IdentityID }

// noteSession puts the id of a session into the call's log line.
func noteSession(ctx context.Context, id string) { wire.CallOf(ctx).SetAttribute("session_id", id) }

// notePosition puts the position that an answer rests on into the call's log line.
func notePosition(ctx context.Context, at events.Position) {
	if at.Seq > 0 {
		wire.CallOf(ctx).SetAttribute("position", at)
	}
}

// kindTurn is the kind of requests that record turns; it has a rate.
const kindTurn = "turn"
