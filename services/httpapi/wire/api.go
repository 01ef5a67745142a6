package wire

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/turnledger/turnledger/services/access"
)

// Config of an API.
type Config struct {
	// Registry of the metrics at /metrics; a new one by default.
	Registry *prometheus.Registry
	Logger   *slog.Logger
	// Traces receives the spans of requests; none by default.
	Traces trace.TracerProvider
	// Checks of readiness.
	Checks []Check
	// Auth finds the caller of a token. Without it, and without Open, only public calls are answered.
	Auth access.Authenticator
	// Open means that callers are not authenticated. The API then answers only requests to an IP address or to
	// localhost. Otherwise a web page in a browser on this machine could reach the API under a host name of the page's
	// owner.
	Open bool
	// Origins are those whose web pages may call the surfaces that allow it, such as https://app.example.org.
	Origins []string
	// MaxRequests bounds the requests that are answered at the same time, MaxStreams the long ones among them; 1,024
	// each by default. More are refused with ErrOverloaded.
	MaxRequests, MaxStreams int
	// Heartbeat is the pause between heartbeats of a stream, 15 s by default. StreamPatience bounds how long a stream's
	// client may read nothing, 30 s by default.
	Heartbeat, StreamPatience time.Duration
}

func (c Config) withDefaults() Config {
	c.Registry = cmp.Or(c.Registry, prometheus.NewRegistry())
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.Traces = cmp.Or[trace.TracerProvider](c.Traces, noop.NewTracerProvider())
	c.MaxRequests, c.MaxStreams = cmp.Or(c.MaxRequests, 1024), cmp.Or(c.MaxStreams, 1024)
	c.Heartbeat = cmp.Or(c.Heartbeat, 15*time.Second)
	c.StreamPatience = cmp.Or(c.StreamPatience, 30*time.Second)
	return c
}

// API answers the calls of its surfaces. Safe for concurrent use once they are mounted.
type API struct {
	cfg      Config
	router   router
	surfaces []*Surface
	metrics  *metrics
	steps    *Steps
	tracer   trace.Tracer
	crossed  *http.CrossOriginProtection
	// requests and streams hold a token for each running request.
	requests, streams chan struct{}

	// ending is closed by EndStreams.
	ending    chan struct{}
	endingNow sync.Mutex
	// suspended, if set, is the reason why only public calls are answered.
	suspended atomic.Pointer[Suspended]
	// outages holds, by the names of failing checks, since when they fail.
	outages sync.Map
}

var _ http.Handler = (*API)(nil)

// New makes an API that answers the calls at the root; it does no I/O.
func New(cfg Config) *API {
	cfg = cfg.withDefaults()
	a := &API{
		cfg: cfg, metrics: newMetrics(cfg.Registry), tracer: cfg.Traces.Tracer("turnledger"),
		steps:   NewSteps(cfg.Registry, cfg.Traces),
		crossed: http.NewCrossOriginProtection(), router: router{},
		requests: make(chan struct{}, cfg.MaxRequests), streams: make(chan struct{}, cfg.MaxStreams),
		ending: make(chan struct{}),
	}
	for path, answer := range map[string]http.HandlerFunc{
		"/healthz": healthz, "/readyz": a.readyz, "/metrics": metricsHandler(cfg.Registry),
	} {
		a.router.add(Route{
			Method: http.MethodGet, Path: path, Public: true,
			Handle: func(w http.ResponseWriter, r *http.Request) error {
				answer(w, r)
				return nil
			},
		})
	}
	return a
}

// Mount adds a surface. It panics if a route lies outside the surface's prefixes, since errors of that route would then
// have another surface's form.
func (a *API) Mount(s Surface) {
	a.surfaces = append(a.surfaces, &s)
	for _, t := range s.Routes {
		if surfaceOf([]*Surface{&s}, t.Path) != &s {
			panic("wire: " + t.Path + " lies outside the prefixes of its surface")
		}
		a.router.add(t)
	}
}

// Routes returns the calls that this process answers.
func (a *API) Routes() (out []Route) {
	for _, some := range a.router {
		for _, t := range some {
			if t.Role == "" {
				out = append(out, t.Route)
			}
		}
	}
	return out
}

// Logger returns the logger of the API.
func (a *API) Logger() *slog.Logger { return a.cfg.Logger }

// ServeHTTP answers a request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	path := r.URL.EscapedPath()
	ctx, span := a.begin(r)
	defer span.End()
	c := &Call{
		Context: ctx, Call: access.Call{Remote: r.RemoteAddr, Path: r.URL.Path, Steps: a.steps},
		surface: surfaceOf(a.surfaces, path),
	}
	r = r.WithContext(c)
	out := &answer{ResponseWriter: w}
	defer a.finish(out, r, c, began)
	h := w.Header()
	h["Cache-Control"], h["X-Content-Type-Options"] = noStore, noSniff
	segments := segmentsOf(path)
	page := a.mayCall(r, c.surface, segments)
	if page && lets(out, r) {
		return
	}
	t, allowed, err := a.router.find(r.Method, segments)
	if err := cmp.Or(a.turnAway(r, t, page), err); err != nil {
		if err == ErrMethod { //nolint:errorlint // as find returns it
			h["Allow"] = []string{allowed}
		}
		c.surface.Refuse(out, r, err)
		return
	}
	t.bind(r, segments)
	a.run(out, r, t)
}

// turnAway returns why a request is refused before its caller is known. t is the zero route if no route was found. A
// page of another site may have made a browser send the request, unless that page is trusted.
func (a *API) turnAway(r *http.Request, t route, trusted bool) error {
	if !trusted && a.crossed.Check(r) != nil || a.cfg.Open && !local(r.Host) {
		return ErrForeign
	}
	if held := a.suspended.Load(); held != nil && !t.Public {
		return held
	}
	if r.URL.RawQuery != "" {
		if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
			return ErrQuery
		}
	}
	return nil
}

// Shared header values; net/http does not change them.
var noStore, noSniff = []string{"no-store"}, []string{"nosniff"}

// run passes a request to its handler, or refuses it.
func (a *API) run(w *answer, r *http.Request, t route) {
	err := a.admit(r, t)
	var leave func()
	if err == nil {
		leave, err = a.enter(t)
	}
	if err == nil {
		defer leave()
		if err = unpack(r); err != nil {
			w.Header()["Accept-Encoding"] = []string{accepted}
		}
	}
	if err == nil {
		if t.Long > 0 {
			// The server's own write deadline is too short for this call. A streaming handler sets its own.
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(t.Long + writeTime))
		}
		if t.Deadline > 0 {
			ctx, cancel := context.WithTimeout(r.Context(), t.Deadline)
			defer cancel()
			r = r.WithContext(ctx)
		}
		if w.call = CallOf(r.Context()); t.Public {
			w.call = nil
		}
		err = t.Handle(w, r)
	}
	if err == nil {
		return
	}
	c := CallOf(r.Context())
	c.Failed(err)
	if w.status == 0 {
		c.surface.Refuse(w, r, err)
	}
}

// Suspend makes the API refuse all but public calls with Suspended, until release is called. ok is false if the API is
// suspended already.
func (a *API) Suspend(why string) (release func(), ok bool) {
	held := &Suspended{why}
	return func() { a.suspended.CompareAndSwap(held, nil) }, a.suspended.CompareAndSwap(nil, held)
}

// UntilStopped returns a context that also ends with EndStreams.
func (a *API) UntilStopped(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	ended := a.streamsEnd()
	go func() {
		select {
		case <-ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func (a *API) streamsEnd() chan struct{} {
	a.endingNow.Lock()
	defer a.endingNow.Unlock()
	return a.ending
}

// Stopped reports whether EndStreams was called.
func (a *API) Stopped() bool {
	select {
	case <-a.streamsEnd():
		return true
	default:
		return false
	}
}

// EndStreams ends the streams that have no end of their own, and those that begin later. The server calls it when it
// stops.
func (a *API) EndStreams() {
	a.endingNow.Lock()
	defer a.endingNow.Unlock()
	select {
	case <-a.ending:
	default:
		close(a.ending)
	}
}

// ResumeStreams lets streams begin again.
func (a *API) ResumeStreams() {
	a.endingNow.Lock()
	defer a.endingNow.Unlock()
	a.ending = make(chan struct{})
}
