// Package console is the web console: pages in which people look at sessions, at the log behind them, and at the views.
// It is a surface of its own beside the native API. It reads through the same ports, and asks the same authenticator
// for each request, so a caller sees in the console what the API would answer to the same key.
package console

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/reach"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// Config of the console. A page whose port is nil says that this process can't show it.
type Config struct {
	// Auth finds the caller of a key. Without it the pages are open, as the API is.
	Auth access.Authenticator
	// SealKey seals the cookies. All processes behind one address need the same one.
	SealKey []byte
	// Login signs people in at the issuer of tokens; nil if they sign in by a key or a token only.
	Login    Login
	Sessions services.SessionReader
	// Turns, SessionWrites, Erasures and Keeper are nil in a process that does not write or keep views.
	Turns         services.TurnWriter
	SessionWrites services.SessionWriter
	Erasures      services.ErasureWriter
	Keeper        services.ProjectionKeeper
	// Events is the log.
	Events  services.EventReader
	Explain services.Explainer
	// Tokens counts the tokens of a text as the prompt's budget does.
	Tokens func(text string) int
	// Lists is nil where no Postgres is configured.
	Lists services.SessionLister
	// Search is nil where no Postgres is configured.
	Search services.Searcher
	// Chat and Contexts are nil in a process that asks no model.
	Chat     services.Chat
	Contexts services.ContextBuilder
	// Counts is nil where no Postgres is configured.
	Counts      services.TurnCounter
	Projections services.ProjectionReader
	// DeadLetters are the queues of the views whose dead letters this process manages.
	DeadLetters []projections.DeadLetterQueue
	Receipts    services.ReceiptReader
	// Places say in words what the places of receipts are, by their names.
	Places map[string]string
	// Identities reports which identities are erased; nil if this process does not know.
	Identities Identities
	// Keys lists the API keys; nil where there is no file of keys.
	Keys func() ([]access.Key, error)
	// Rules restrict callers to what they may reach.
	reach.Rules
	// Deadline bounds one page, 30 s by default.
	Deadline time.Duration
	// Version is shown at the foot of each page.
	Version string
	Now     func() time.Time
}

// Identities returns the event that erased an identity, or nil for one that is not erased.
type Identities interface {
	IdentityErasedNow(ctx context.Context, identityID string) (*events.IdentityErased, error)
}

// surface is the console.
type surface struct {
	api    *wire.API
	cfg    Config
	seal   seal
	routes []wire.Route
}

// root is the prefix of all paths of the console.
const root = "/console"

// Form returns the surface without its routes: it only refuses.
func Form() wire.Surface { return (&surface{}).form() }

func (s *surface) form() wire.Surface {
	return wire.Surface{Prefixes: []string{root}, Refuse: s.refuse, SafeText: safeText, Token: s.token}
}

// Mount adds the console to an API; it does no I/O.
func Mount(api *wire.API, cfg Config) {
	cfg.Deadline = cmp.Or(cfg.Deadline, 30*time.Second)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &surface{api: api, cfg: cfg, seal: newSeal(cfg.SealKey)}
	s.declare()
	form := s.form()
	form.Routes = s.routes
	api.Mount(form)
}

// declare adds the routes.
func (s *surface) declare() {
	s.public(http.MethodGet, "", redirect)
	s.public(http.MethodGet, "/assets/{file}", asset)
	s.public(http.MethodPost, "/signin", s.signIn)
	s.public(http.MethodPost, "/signout", s.signOut)
	if s.cfg.Login != nil && s.cfg.Auth != nil {
		s.public(http.MethodGet, "/signin/issuer", s.toIssuer)
		s.public(http.MethodGet, "/signin/callback", s.fromIssuer)
	}
	s.page(http.MethodGet, "/", 0, access.ContextRead|access.EventsRead, ownOnly, s.sessions)
	s.page(http.MethodPost, "/", 0, access.ContextRead|access.EventsRead, ownOnly, s.querySessions)
	s.routes = append(s.routes, wire.Route{
		Method: http.MethodGet, Path: root + "/open", Any: access.ContextRead | access.EventsRead, MayReach: ownOnly,
		Handle: openSession,
	})
	s.page(http.MethodGet, "/search", 0, access.ContextRead|access.EventsRead, ownOnly, s.searchForm)
	s.page(http.MethodPost, "/search", 0, access.ContextRead|access.EventsRead, ownOnly, s.search)
	s.page(http.MethodGet, "/log", access.EventsRead, 0, nil, s.log)
	s.page(http.MethodGet, "/views", access.Admin, 0, nil, s.views)
	s.page(http.MethodGet, "/deadletters", access.Admin, 0, nil, s.deadLetters)
	s.page(http.MethodGet, "/receipts", access.TurnsRedact, 0, nil, s.receipts)
	s.page(http.MethodGet, "/keys", access.Admin, 0, nil, s.keys)
	s.page(http.MethodGet, "/stats", 0, access.EventsRead|access.Admin, nil, s.stats)
	s.page(http.MethodGet, onSession, access.ContextRead, 0, s.ownSession, s.session)
	s.page(http.MethodGet, onTurn, access.ContextRead|access.EventsRead, 0, s.ownSession, s.explainTurn)
	s.page(http.MethodGet, onSession+"/explain", access.ContextRead|access.EventsRead, 0, s.ownSession, s.explainEvent)
	s.lives("/log", nil)
	s.lives(onSession, s.ownSession)
	s.file(onSession+"/events/{position}", s.wholeEvent)
	s.file(onSession+"/export", s.export)
	s.actions()
	s.keeping()
	if s.cfg.Chat != nil && s.cfg.Contexts != nil {
		s.chats()
	}
}

// chats adds the playground. A bound key has none.
func (s *surface) chats() {
	const needs = access.TurnsWrite | access.ContextRead
	s.page(http.MethodGet, "/playground", needs, 0, nil, s.playground)
	s.page(http.MethodPost, "/playground/prompt", needs, 0, nil, s.prompt)
	for path, handle := range map[string]func(http.ResponseWriter, *http.Request) error{
		"/playground/send": s.send, "/playground/stream": s.stream,
	} {
		s.routes = append(s.routes, wire.Route{
			Method: http.MethodPost, Path: root + path, Needs: needs, Long: liveTime, Handle: handle,
		})
	}
}

// lives adds the news for a page.
func (s *surface) lives(path string, may mayReach) {
	s.routes = append(s.routes, wire.Route{
		Method: http.MethodGet, Path: root + path + "/live", Needs: access.EventsRead, MayReach: may, Long: liveTime,
		Handle: s.live,
	})
}

// file adds what a session's page links to beside pages: something of the log.
func (s *surface) file(path string, handle func(http.ResponseWriter, *http.Request) error) {
	s.routes = append(s.routes, wire.Route{
		Method: http.MethodGet, Path: root + path, Needs: access.EventsRead, MayReach: s.ownSession,
		Handle: func(w http.ResponseWriter, r *http.Request) error {
			policy(w.Header())
			return handle(w, r)
		},
	})
}

func (s *surface) public(method, path string, handle func(http.ResponseWriter, *http.Request) error) {
	s.routes = append(s.routes, wire.Route{
		Method: method, Path: root + path, Public: true,
		Handle: func(w http.ResponseWriter, r *http.Request) error {
			policy(w.Header())
			return handle(w, r)
		},
	})
}

// mayReach says what a bound caller may reach, as in wire.Route.
type mayReach func(r *http.Request, identityID string) error

// ownOnly lets bound callers in: the page itself shows them no more than their own.
func ownOnly(*http.Request, string) error { return nil }

// ownSession lets bound callers in if the session in the path is theirs.
func (s *surface) ownSession(r *http.Request, identityID string) error {
	return s.cfg.Session(r.Context(), identityID, r.PathValue("session_id"))
}

// page adds a page. A page without may is refused to bound callers. show returns the name of the template and what it
// shows.
func (s *surface) page(
	method, path string, needs, anyOf access.Scopes, may mayReach,
	show func(ctx context.Context, r *http.Request) (view, error),
) {
	s.routes = append(s.routes, wire.Route{
		Method: method, Path: root + path, Needs: needs, Any: anyOf, MayReach: may,
		Handle: func(w http.ResponseWriter, r *http.Request) error {
			ctx, cancel := context.WithTimeout(r.Context(), s.cfg.Deadline)
			defer cancel()
			v, err := show(ctx, r)
			if err != nil {
				return err
			}
			s.renew(w, r)
			return s.render(w, r, http.StatusOK, v)
		},
	})
}

// redirect leads from the path without its slash to the first page.
func redirect(w http.ResponseWriter, r *http.Request) error {
	http.Redirect(w, r, root+"/", http.StatusPermanentRedirect)
	return nil
}

// allows reports whether the caller has a scope; in an open console everybody has all.
func (s *surface) allows(ctx context.Context, scope access.Scopes) bool {
	return s.cfg.Auth == nil || wire.CallOf(ctx).Caller.Scopes&scope != 0
}
