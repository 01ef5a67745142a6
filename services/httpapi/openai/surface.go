package openai

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/openai/respond"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/items"
)

// Config of the surface. In a process that does not write, Messages and the other writers are nil.
type Config struct {
	services.Ports

	// Items adds to conversations; nil in a process that does not write.
	Items services.ItemAdder
	// Conversations reads them as items.
	Conversations services.ItemReader
	// Key makes the ids of items, and the digests by which a repeated call is known. All processes on a log need the
	// same one, for ever.
	Key []byte
	// Responses answers with a model; nil in a process without one. HostedTools: the model knows tools of its own.
	Responses   services.Responder
	HostedTools respond.HostedTools
	// OnPending applies to requests for responses that name none; Enqueue by default.
	OnPending services.OnPending
	// ChatHistory is the history of chat completions that name none; HistoryAuto by default. SessionHeaders are headers
	// of other products that name a session, beside our own.
	ChatHistory    services.History
	SessionHeaders []string
	// Models are the names of the models that answer.
	Models []string
	// Strict refuses what OpenAI refuses and this surface would take.
	Strict bool
	// MaxBody bounds the body of a request in bytes; 16 MiB by default.
	MaxBody int64
}

// defaultBody bounds a request's body.
const defaultBody = 16 << 20

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
	cfg.Ports, cfg.MaxBody = cfg.WithDefaults(), cmp.Or(cfg.MaxBody, defaultBody)
	cfg.OnPending = cmp.Or(cfg.OnPending, services.Enqueue)
	cfg.ChatHistory = cmp.Or(cfg.ChatHistory, services.HistoryAuto)
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
	own := s.own
	s.call(http.MethodPost, conversations, access.TurnsWrite, writes, writing, s.adds, s.createConversation)
	s.call(http.MethodGet, oneConversation, access.ContextRead, reads, reading, own, s.getConversation)
	s.call(http.MethodPost, oneConversation, access.TurnsWrite, writes, writing, own, s.updateConversation)
	s.call(http.MethodDelete, oneConversation, access.TurnsRedact, s.cfg.Erasures != nil, writing, own,
		s.deleteConversation)
	s.call(http.MethodPost, itemsOfOne, access.TurnsWrite, writes, writing, s.adds, s.createItems)
	s.call(http.MethodGet, itemsOfOne, access.ContextRead, reads, reading, own, s.listItems)
	s.call(http.MethodGet, oneItem, access.ContextRead, reads, reading, own, s.getItem)
	s.call(http.MethodDelete, oneItem, access.TurnsRedact, writes, writing, own, s.deleteItem)
	s.call(http.MethodGet, models, 0, writes || reads, "", s.anybody, s.listModels)
	s.call(http.MethodGet, models+"/{model}", 0, writes || reads, "", s.anybody, s.getModel)
	s.list(reads)
	s.declareResponses()
	s.declareCompletions()
}

// list adds the list of conversations, which callers of two scopes may ask for.
func (s *surface) list(here bool) {
	s.call(http.MethodGet, conversations, 0, here, reading, s.anybody, s.listConversations)
	s.routes[len(s.routes)-1].Any = access.ContextRead | access.EventsRead
}

// admits lets a request in, as in wire.Route.
type admits = func(*http.Request) error

// anybody lets in who asks for nothing of a conversation: the call itself shows bound callers no more than their own.
func (s *surface) anybody(r *http.Request) error { return s.cfg.Admit(r.Context(), services.Entry{}) }

// later lets requests in whose handler finds out which conversation they are about, and admits them.
func later(*http.Request) error { return wire.ErrLater }

// own lets in who reaches the conversation in the path.
func (s *surface) own(r *http.Request) error {
	id := r.PathValue("conversation_id")
	if decide.ValidIDs("conversation_id", id) != nil {
		return noConversation()
	}
	return s.cfg.Admit(r.Context(), services.Entry{SessionID: id})
}

// adds lets in who may add to the conversation in the path, or begins one.
func (s *surface) adds(r *http.Request) error {
	id := r.PathValue("conversation_id")
	if id != "" && decide.ValidIDs("conversation_id", id) != nil {
		return noConversation()
	}
	return s.cfg.Admit(r.Context(), services.Entry{
		Kind: services.KindTurn, SessionID: id, IdentityID: bound(r.Context()),
	})
}

// anyScope are all scopes: a call that needs none of them in particular is still none for strangers.
const anyScope = access.TurnsWrite | access.ContextRead | access.EventsRead | access.TurnsRedact | access.Admin

// call adds a call, which answers 200 with what answer returns, or notes that processes of another role answer it.
func (s *surface) call(
	method, path string, needs access.Scopes, here bool, role string, admit admits,
	answer func(ctx context.Context, r *http.Request, h http.Header) (any, error),
) {
	t := wire.Route{Method: method, Path: path, Needs: needs, Admit: admit, Deadline: s.cfg.Deadline}
	if needs == 0 {
		t.Any = anyScope
	}
	if !here {
		t.Role = role
	}
	t.Handle = func(w http.ResponseWriter, r *http.Request) error {
		out, err := answer(r.Context(), r, w.Header())
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
