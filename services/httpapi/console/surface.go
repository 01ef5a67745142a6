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
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// Config of the console. A page whose port is nil says that this process can't show it.
type Config struct {
	services.Ports

	// Auth finds the caller of a key. Without it the pages are open, as the API is.
	Auth access.Authenticator
	// SealKey seals the cookies. All processes behind one address need the same one.
	SealKey []byte
	// Login signs people in at the issuer of tokens; nil if they sign in by a key or a token only.
	Login   Login
	Explain services.Explainer
	// Tokens counts the tokens of a text as the prompt's budget does.
	Tokens func(text string) int
	// Places say in words what the places of receipts are, by their names.
	Places map[string]string
	// Erased reports which identities are erased; nil if this process does not know.
	Erased Identities
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
	cfg.Ports = cfg.WithDefaults()
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
	s.page(http.MethodGet, "/", 0, access.ContextRead|access.EventsRead, s.anybody, s.sessions)
	s.page(http.MethodPost, "/", 0, access.ContextRead|access.EventsRead, s.anybody, s.querySessions)
	s.routes = append(s.routes, wire.Route{
		Method: http.MethodGet, Path: root + "/open", Any: access.ContextRead | access.EventsRead, Admit: s.anybody,
		Handle: openSession,
	})
	s.page(http.MethodGet, "/search", 0, access.ContextRead|access.EventsRead, s.anybody, s.searchForm)
	s.page(http.MethodPost, "/search", 0, access.ContextRead|access.EventsRead, s.anybody, s.search)
	s.page(http.MethodGet, "/log", access.EventsRead, 0, s.unbound, s.log)
	s.page(http.MethodGet, "/views", access.Admin, 0, s.unbound, s.views)
	s.page(http.MethodGet, "/deadletters", access.Admin, 0, s.unbound, s.deadLetters)
	s.page(http.MethodGet, "/receipts", access.TurnsRedact, 0, s.unbound, s.receipts)
	s.page(http.MethodGet, "/keys", access.Admin, 0, s.unbound, s.keys)
	s.page(http.MethodGet, "/stats", 0, access.EventsRead|access.Admin, s.unbound, s.stats)
	s.page(http.MethodGet, onSession, access.ContextRead, 0, s.own, s.session)
	s.page(http.MethodGet, onTurn, access.ContextRead|access.EventsRead, 0, s.own, s.explainTurn)
	s.page(http.MethodGet, onSession+"/explain", access.ContextRead|access.EventsRead, 0, s.own, s.explainEvent)
	s.lives("/log", s.unbound)
	s.lives(onSession, s.own)
	s.file(onSession+"/events/{position}", s.cfg.Deadline, s.wholeEvent)
	s.file(onSession+"/export", 0, s.export)
	if s.cfg.WhatIfs != nil {
		s.page(http.MethodGet, onSession+"/whatif", access.ContextRead, 0, s.own, s.whatIf)
	}
	if s.cfg.People != nil {
		s.routes = append(s.routes, wire.Route{
			Method: http.MethodGet, Path: root + "/identities/{identity_id}/archive", Needs: access.ContextRead,
			Admit: s.ownIdentity, Long: liveTime, Handle: s.person,
		})
	}
	s.actions()
	s.keeping()
	if s.cfg.Chat != nil && s.cfg.Contexts != nil {
		s.chats()
	}
}

// chats adds the playground. A bound key has none.
func (s *surface) chats() {
	const needs = access.TurnsWrite | access.ContextRead
	s.page(http.MethodGet, "/playground", needs, 0, s.unbound, s.playground)
	s.page(http.MethodPost, "/playground/prompt", needs, 0, s.unbound, s.prompt)
	for path, handle := range map[string]func(http.ResponseWriter, *http.Request) error{
		"/playground/send": s.send, "/playground/stream": s.stream,
	} {
		s.routes = append(s.routes, wire.Route{
			Method: http.MethodPost, Path: root + path, Needs: needs, Admit: s.talks, Long: liveTime,
			Deadline: liveTime, Handle: handle,
		})
	}
}

// lives adds the news for a page.
func (s *surface) lives(path string, admit admits) {
	s.routes = append(s.routes, wire.Route{
		Method: http.MethodGet, Path: root + path + "/live", Needs: access.EventsRead, Admit: admit, Long: liveTime,
		Handle: s.live,
	})
}

// file adds what a session's page links to beside pages: something of the log.
func (s *surface) file(path string, deadline time.Duration, handle func(http.ResponseWriter, *http.Request) error) {
	s.routes = append(s.routes, wire.Route{
		Method: http.MethodGet, Path: root + path, Needs: access.EventsRead, Admit: s.own, Deadline: deadline,
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

// admits lets a request in, as in wire.Route.
type admits = func(*http.Request) error

// anybody lets bound callers in: the page itself shows them no more than their own.
func (s *surface) anybody(r *http.Request) error { return s.cfg.Admit(r.Context(), services.Entry{}) }

// unbound lets in who is bound to no identity.
func (s *surface) unbound(r *http.Request) error {
	if wire.CallOf(r.Context()).Caller.IdentityID != "" {
		return wire.ErrBound
	}
	return s.anybody(r)
}

// talks lets in who may use the playground; which thread the message goes to stands in the form.
func (s *surface) talks(r *http.Request) error {
	return cmp.Or(s.unbound(r), wire.ErrLater)
}

// own lets in who reaches the session in the path.
func (s *surface) own(r *http.Request) error {
	return s.cfg.Admit(r.Context(), services.Entry{SessionID: r.PathValue("session_id")})
}

// page adds a page. show returns the name of the template and what it
// shows.
func (s *surface) page(
	method, path string, needs, anyOf access.Scopes, admit admits,
	show func(ctx context.Context, r *http.Request) (view, error),
) {
	s.routes = append(s.routes, wire.Route{
		Method: method, Path: root + path, Needs: needs, Any: anyOf, Admit: admit,
		Deadline: s.cfg.Deadline,
		Handle: func(w http.ResponseWriter, r *http.Request) error {
			v, err := show(r.Context(), r)
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
