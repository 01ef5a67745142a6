package httpapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
)

// Config of an API. A process that does not write has neither Turns nor
// SessionWrites, one that does not read has neither Sessions nor Contexts; it then
// lacks those calls.
type Config struct {
	Turns         services.TurnWriter
	SessionWrites services.SessionWriter
	// Erasures and Receipts are nil in a process that can't tell of them.
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
	// keys that views show of metadata: who folds the events himself is told.
	Events       services.EventReader
	MetadataKeys []string
	// Keeper is nil where no view can be rebuilt.
	Keeper services.ProjectionKeeper
	// Streams and Backups are nil where the log is nobody's to look after.
	Streams StreamKeeper
	Backups Backups
	// Limiter is nil where no rate is limited.
	Limiter RateLimiter
	// Checks of readiness.
	Checks []Check

	// Registry of the metrics that /metrics shows; a new one by default.
	Registry *prometheus.Registry
	Logger   *slog.Logger
	// Traces of requests; none by default.
	Traces trace.TracerProvider
	// Deadline of one call; 30 s by default.
	Deadline time.Duration
	// MaxBody bounds the body of a request in bytes; 1 MiB by default. MaxRequests are those
	// that are answered at once, MaxStreams those of them that may take long: chats,
	// events, verifications; 1,024 each by default. More are refused with 503.
	MaxBody                 int64
	MaxRequests, MaxStreams int
	// RefusalTime is how long it takes a caller who is bound to an identity to hear that he
	// may not know of a session, 500 ms by default: as long for a session that there is as
	// for one that there is not. It should be more than the reading of a session takes.
	RefusalTime time.Duration
	// Heartbeat of streams, 15 s by default; StreamPatience is how long a client of one
	// may take nothing, 30 s by default.
	Heartbeat, StreamPatience time.Duration
	// Auth tells whose token a request brings. Without it, and without Open, nobody is let
	// in but to what is public.
	Auth Authenticator
	// Owners reads of sessions whose they are, for callers who are bound to an identity
	// (without it they reach no session) and for rates of identities.
	Owners services.SessionReader
	// Open says that nobody is authenticated: the API then answers only where it is
	// called by address or as localhost, so that no page that a browser on this machine
	// shows can reach it under a name of its own.
	Open    bool
	Version string
	// HashKey is the key of the hashes of addresses that go with refused links; by default
	// one that ends with the process.
	HashKey []byte
	Now     func() time.Time
}

func (c Config) withDefaults() Config {
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Traces == nil {
		c.Traces = noop.NewTracerProvider()
	}
	if c.Deadline == 0 {
		c.Deadline = 30 * time.Second
	}
	c.MaxBody = cmp.Or(c.MaxBody, defaultBody)
	c.MaxRequests, c.MaxStreams = cmp.Or(c.MaxRequests, 1024), cmp.Or(c.MaxStreams, 1024)
	c.RefusalTime = cmp.Or(c.RefusalTime, 500*time.Millisecond)
	if c.Heartbeat == 0 {
		c.Heartbeat = 15 * time.Second
	}
	if c.StreamPatience == 0 {
		c.StreamPatience = 30 * time.Second
	}
	if len(c.HashKey) == 0 {
		c.HashKey = []byte(rand.Text())
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// API is the HTTP API. Safe for concurrent use.
type API struct {
	cfg     Config
	router  *router
	metrics *metrics
	tracer  trace.Tracer
	crossed *http.CrossOriginProtection
	// requests and streams hold a token for each that is under way.
	requests, streaming chan struct{}

	stopping chan struct{}
	stopOnce sync.Once
	// restoring: the log is being made of a backup, and nothing else is answered.
	restoring atomic.Bool
	outages   outages
}

var _ http.Handler = (*API)(nil)

// New makes the API; it does no I/O.
func New(cfg Config) *API {
	cfg = cfg.withDefaults()
	a := &API{
		cfg: cfg, metrics: newMetrics(cfg.Registry), tracer: cfg.Traces.Tracer("turnledger"),
		crossed: http.NewCrossOriginProtection(), stopping: make(chan struct{}),
	}
	a.requests, a.streaming = make(chan struct{}, cfg.MaxRequests), make(chan struct{}, cfg.MaxStreams)
	a.router = &router{admit: a.admit, enter: a.enter}
	api := documenter{huma.NewAPI(humaConfig(cfg.Version), a.router)}
	a.ofRole(api, "api", cfg.Turns != nil, a.writes)
	a.ofRole(api, "api", cfg.Erasures != nil, a.erasures)
	if cfg.Receipts != nil {
		a.receipts(api)
	}
	a.ofRole(api, "eraser", cfg.Retention != nil, a.retains)
	a.ofRole(api, "context", cfg.Sessions != nil, a.reads)
	a.ofRole(api, "chat", cfg.Chat != nil, a.chats)
	a.ofRole(api, "context", cfg.Events != nil, a.streams)
	register(
		a, api, operation("list-projections", Admin, http.MethodGet, "/projections", "See how far the views are"),
		a.projections,
	)
	a.operates(api)
	if cfg.Keeper != nil {
		a.keeping(api)
	}
	if cfg.Streams != nil {
		a.keepsStreams(api)
	}
	if cfg.Backups != nil {
		a.backs(api)
	}
	a.router.answer(public, "GET /healthz", a.healthz)
	a.router.answer(public, "GET /readyz", a.readyz)
	a.router.answer(public, "GET /metrics", metricsHandler(cfg.Registry))
	document(a.router, api.OpenAPI())
	return a
}

// ofRole adds the calls of a role, or notes that they are answered elsewhere.
func (a *API) ofRole(api huma.API, role string, here bool, add func(huma.API)) {
	if here {
		add(api)
		return
	}
	calls := &router{}
	add(huma.NewAPI(humaConfig(a.cfg.Version), calls))
	a.router.elsewhere = append(a.router.elsewhere, elsewhere{role, calls})
}

// ServeHTTP answers a request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	r, span := a.begin(r)
	defer span.End()
	c := &call{Context: r.Context(), remote: r.RemoteAddr, mostBody: a.cfg.MaxBody}
	r = r.WithContext(c)
	out := &answer{ResponseWriter: w}
	defer a.finish(out, r, c, began)
	h := w.Header()
	h["Cache-Control"], h["X-Content-Type-Options"] = noStore, noSniff
	// Not what a page of another site made a browser send.
	if a.crossed.Check(r) != nil || a.cfg.Open && !local(r.Host) {
		newProblem(codeForbidden, "a page of another site may not call this API; without authentication it answers "+
			"only to an IP address or localhost").write(out)
		return
	}
	if a.restoring.Load() && strings.HasPrefix(r.URL.Path, "/v1/") {
		newProblem(codeLogUnavailable, "a backup is being restored: ask again when it is").write(out)
		return
	}
	// Where the query can't be read, a parameter would be taken for missing.
	if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
		fieldErrors{{Field: "query", Why: "is not percent-encoded as it should be"}}.problem().write(out)
		return
	}
	a.router.ServeHTTP(out, r)
}

// Shared header values; net/http does not change them.
var noStore, noSniff = []string{"no-store"}, []string{"nosniff"}

// register adds a call: problems for errors, and a deadline.
func register[I, O any](a *API, api huma.API, op huma.Operation, handle func(context.Context, *I) (*O, error)) {
	registerFor(api, a.cfg.Deadline, op, handle)
}

func registerFor[I, O any](
	api huma.API, deadline time.Duration, op huma.Operation, handle func(context.Context, *I) (*O, error),
) {
	if b, ok := any(new(I)).(bodied); ok {
		op.Metadata[metaBody], op.Metadata[metaMembers] = b.bodyType(), membersOf(b.bodyType())
	}
	huma.Register(api, op, func(ctx context.Context, in *I) (*O, error) {
		ctx, cancel := context.WithTimeout(ctx, deadline)
		defer cancel()
		out, err := handled(ctx, in, handle)
		if err != nil {
			p := problemOf(err)
			callOf(ctx).err = p
			return nil, p
		}
		return out, nil
	})
}

// registerRaw adds a call that reads and writes by itself, for as long as it takes. I
// describes its parameters.
func registerRaw[I any](api huma.API, op huma.Operation, handle http.HandlerFunc) {
	huma.Register(api, with(op, metaLong, true), func(context.Context, *I) (*streamOut, error) {
		return &streamOut{func(ctx huma.Context) {
			r, w := humago.Unwrap(ctx)
			handle(w, r)
		}}, nil
	})
}

func handled[I, O any](ctx context.Context, in *I, handle func(context.Context, *I) (*O, error)) (*O, error) {
	if b, ok := any(in).(bodied); ok {
		if err := cmp.Or(b.fault(), speaksForItself(ctx, b)); err != nil {
			return nil, err
		}
	}
	return handle(ctx, in)
}
