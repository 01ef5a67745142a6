package wire_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/services/access"
	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// mostNotes bounds the bodies of the test surface, far above those of the native one.
const mostNotes = 4 << 20

// errNoNote is an error of the test surface's own.
var errNoNote = errors.New("no such note")

// notes is a second surface: two routes under /v1/notes, lax bodies, its own rule of ownership, and its own errors.
func notes(busy chan struct{}) wire.Surface {
	return wire.Surface{
		Prefixes: []string{"/v1/notes"}, Refuse: refuseNotes,
		SafeText: func(err error) string { return "notes: " + wire.SafeText(err) },
		Routes: []wire.Route{
			{Method: http.MethodPost, Path: "/v1/notes", Needs: access.TurnsWrite, Admit: ownNotes,
				Handle: writeNote},
			{Method: http.MethodGet, Path: "/v1/notes/{note_id}", Needs: access.ContextRead, Admit: ownNotes,
				Handle: func(w http.ResponseWriter, r *http.Request) error {
					switch r.PathValue("note_id") {
					case "none":
						return errNoNote
					case "broken":
						panic("a text")
					case "slow":
						busy <- struct{}{}
						<-busy
					case "late":
						wire.WriteJSON(w, http.StatusOK, "begun")
						return errors.New("after the answer has begun")
					}
					wire.WriteJSON(w, http.StatusOK, map[string]string{"id": r.PathValue("note_id")})
					return nil
				}},
		},
	}
}

// writeNote takes any object, whatever its members.
func writeNote(w http.ResponseWriter, r *http.Request) error {
	raw, err := wire.ReadBody(r, mostNotes)
	if err != nil {
		return err
	}
	var note map[string]any
	if err := json.Unmarshal(raw, &note); err != nil {
		return fmt.Errorf("read a note: %w", err)
	}
	wire.WriteJSON(w, http.StatusOK, map[string]int{"members": len(note), "bytes": len(raw)})
	return nil
}

// ownNotes: the id of a note begins with the identity that it belongs to.
func ownNotes(r *http.Request) error {
	identity := wire.CallOf(r.Context()).Caller.IdentityID
	if id := r.PathValue("note_id"); identity != "" && id != "" && !strings.HasPrefix(id, identity+"-") {
		return errNoNote
	}
	return nil
}

func refuseNotes(w http.ResponseWriter, _ *http.Request, err error) {
	status := http.StatusInternalServerError
	var scopes *access.MissingScopes
	var large *wire.TooLarge
	var held *wire.Suspended
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, access.ErrUnauthenticated), errors.Is(err, access.ErrKeyEnded):
		status = http.StatusUnauthorized
	case errors.As(err, &scopes), errors.Is(err, wire.ErrForeign), errors.Is(err, wire.ErrNoScope):
		status = http.StatusForbidden
	case errors.Is(err, errNoNote), errors.Is(err, wire.ErrNoRoute):
		status = http.StatusNotFound
	case errors.Is(err, wire.ErrMethod):
		status = http.StatusMethodNotAllowed
	case errors.As(err, &large):
		status = http.StatusRequestEntityTooLarge
	case errors.As(err, &syntax), errors.Is(err, wire.ErrQuery), errors.Is(err, wire.ErrBody),
		errors.Is(err, wire.ErrPacked):
		status = http.StatusBadRequest
	case errors.Is(err, wire.ErrEncoding):
		status = http.StatusUnsupportedMediaType
	case errors.Is(err, wire.ErrOverloaded):
		w.Header().Set("Retry-After", "7")
		status = http.StatusTooManyRequests
	case errors.As(err, &held):
		status = http.StatusServiceUnavailable
	}
	w.Header().Set("X-Notes", "1")
	wire.WriteJSON(w, status, map[string]any{"error": map[string]any{"message": http.StatusText(status),
		"code": status}})
}

// ring knows callers by their tokens.
type ring map[string]access.Caller

func (r ring) Authenticate(_ context.Context, token string) (access.Caller, error) {
	if c, ok := r[token]; ok {
		return c, nil
	}
	return access.Caller{}, access.ErrUnauthenticated
}

// beside is an API with the native surface and the test's.
func beside(t *testing.T, set func(*wire.Config)) (*wire.API, chan struct{}) {
	t.Helper()
	const all = access.TurnsWrite | access.ContextRead
	cfg := wire.Config{Auth: ring{
		"all": {Name: "all", Scopes: all}, "ada": {Name: "ada", Scopes: all, IdentityID: "ada"},
		"reader": {Name: "reader", Scopes: access.ContextRead},
	}}
	if set != nil {
		set(&cfg)
	}
	busy := make(chan struct{})
	api := wire.New(cfg)
	v1.Mount(api, v1.Config{})
	api.Mount(notes(busy))
	return api, busy
}

func ask(api http.Handler, token, method, path string, body io.Reader) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, body)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	return w
}

// requireNotes demands the error form of the test surface, and nothing of the native one.
func requireNotes(t *testing.T, w *httptest.ResponseRecorder, status int) {
	t.Helper()
	require.Equal(t, status, w.Code, w.Body)
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.Equal(t, "1", w.Header().Get("X-Notes"))
	require.JSONEq(t, fmt.Sprintf(`{"error":{"message":%q,"code":%d}}`, http.StatusText(status), status),
		w.Body.String())
	require.Empty(t, w.Header().Get("WWW-Authenticate"), "a header of the native surface")
}

func requireNative(t *testing.T, w *httptest.ResponseRecorder, status int, code string) {
	t.Helper()
	require.Equal(t, status, w.Code, w.Body)
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	require.Contains(t, w.Body.String(), `"code":"`+code+`"`)
	require.Empty(t, w.Header().Get("X-Notes"))
}

// Whoever refuses, the surface that the path belongs to says so in its own form.
func TestASecondSurfaceHasItsOwnErrors(t *testing.T) {
	t.Parallel()
	api, _ := beside(t, nil)
	requireNotes(t, ask(api, "", "GET", "/v1/notes/a", nil), http.StatusUnauthorized)
	requireNotes(t, ask(api, "wrong", "GET", "/v1/notes/a", nil), http.StatusUnauthorized)
	requireNotes(t, ask(api, "reader", "POST", "/v1/notes", strings.NewReader("{}")), http.StatusForbidden)
	requireNotes(t, ask(api, "all", "GET", "/v1/notes/none", nil), http.StatusNotFound)
	requireNotes(t, ask(api, "all", "GET", "/v1/notes/a/b/c", nil), http.StatusNotFound)
	requireNotes(t, ask(api, "all", "GET", "/v1/notes/broken", nil), http.StatusInternalServerError)
	requireNotes(t, ask(api, "all", "GET", "/v1/notes/a?b=%zz", nil), http.StatusBadRequest)
	w := ask(api, "all", "PUT", "/v1/notes", nil)
	requireNotes(t, w, http.StatusMethodNotAllowed)
	require.Equal(t, "POST", w.Header().Get("Allow"))
	foreign := httptest.NewRequest("POST", "/v1/notes", strings.NewReader("{}"))
	foreign.Header.Set("Sec-Fetch-Site", "cross-site")
	out := httptest.NewRecorder()
	api.ServeHTTP(out, foreign)
	requireNotes(t, out, http.StatusForbidden)

	// Its neighbour keeps its own form, also where a path only begins alike.
	requireNative(t, ask(api, "", "GET", "/v1/projections", nil), http.StatusUnauthorized, "unauthenticated")
	requireNative(t, ask(api, "all", "GET", "/v1/notesome", nil), http.StatusNotFound, "not_found")
	requireNative(t, ask(api, "reader", "GET", "/v1/projections", nil), http.StatusForbidden, "forbidden")
}

func TestASecondSurfaceHasItsOwnBodies(t *testing.T) {
	t.Parallel()
	api, _ := beside(t, nil)
	w := ask(api, "all", "POST", "/v1/notes", strings.NewReader(`{"text":"t","nobody_knows":1,"request_id":{}}`))
	require.Equal(t, http.StatusOK, w.Code)
	require.JSONEq(t, `{"members":3,"bytes":45}`, w.Body.String())
	requireNotes(t, ask(api, "all", "POST", "/v1/notes", strings.NewReader("{")), http.StatusBadRequest)
	large := `{"text":"` + strings.Repeat("t", 2<<20) + `"}`
	require.Equal(t, http.StatusOK, ask(api, "all", "POST", "/v1/notes", strings.NewReader(large)).Code,
		"more than the native surface takes")
	requireNotes(t, ask(api, "all", "POST", "/v1/notes", strings.NewReader(large+strings.Repeat(" ", mostNotes))),
		http.StatusRequestEntityTooLarge)
}

func TestASecondSurfaceHasItsOwnRuleOfOwnership(t *testing.T) {
	t.Parallel()
	api, _ := beside(t, nil)
	require.Equal(t, http.StatusOK, ask(api, "ada", "GET", "/v1/notes/ada-1", nil).Code)
	require.Equal(t, http.StatusOK, ask(api, "all", "GET", "/v1/notes/bob-1", nil).Code)
	requireNotes(t, ask(api, "ada", "GET", "/v1/notes/bob-1", nil), http.StatusNotFound)
}

// A route that does not say what a bound caller may reach is for none.
func TestARouteWithoutARuleOfOwnershipIsForNoBoundCaller(t *testing.T) {
	t.Parallel()
	api, _ := beside(t, nil)
	s := notes(nil)
	s.Prefixes, s.Routes = []string{"/v1/other"}, []wire.Route{{Method: http.MethodGet, Path: "/v1/other",
		Needs: access.ContextRead, Handle: writeNote}}
	refused := error(nil)
	s.Refuse = func(_ http.ResponseWriter, _ *http.Request, err error) { refused = err }
	api.Mount(s)
	ask(api, "ada", "GET", "/v1/other", nil)
	require.ErrorIs(t, refused, wire.ErrBound)
}

func TestASecondSurfaceIsHeldToTheSameLimits(t *testing.T) {
	t.Parallel()
	api, busy := beside(t, func(c *wire.Config) { c.MaxRequests = 1 })
	done := make(chan int)
	go func() { done <- ask(api, "all", "GET", "/v1/notes/slow", nil).Code }()
	<-busy
	w := ask(api, "all", "GET", "/v1/notes/a", nil)
	requireNotes(t, w, http.StatusTooManyRequests)
	require.Equal(t, "7", w.Header().Get("Retry-After"))
	require.Equal(t, http.StatusOK, ask(api, "", "GET", "/healthz", nil).Code)
	busy <- struct{}{}
	require.Equal(t, http.StatusOK, <-done)

	release, ok := api.Suspend("the log is away")
	require.True(t, ok)
	_, again := api.Suspend("another")
	require.False(t, again)
	requireNotes(t, ask(api, "all", "GET", "/v1/notes/a", nil), http.StatusServiceUnavailable)
	requireNative(t, ask(api, "all", "GET", "/v1/projections", nil), http.StatusServiceUnavailable, "log_unavailable")
	require.Equal(t, http.StatusOK, ask(api, "", "GET", "/healthz", nil).Code)
	release()
	require.Equal(t, http.StatusOK, ask(api, "all", "GET", "/v1/notes/a", nil).Code)
}

// An error that comes after the answer has begun does not spoil it.
func TestAnErrorAfterTheAnswerHasBegunIsOnlyLogged(t *testing.T) {
	t.Parallel()
	api, _ := beside(t, nil)
	w := ask(api, "all", "GET", "/v1/notes/late", nil)
	require.Equal(t, http.StatusOK, w.Code)
	require.JSONEq(t, `"begun"`, w.Body.String())
}

func TestAClosedProcessRefusesInTheFormOfEachSurface(t *testing.T) {
	t.Parallel()
	closed := wire.Closed("log", "come again", v1.Form(), notes(nil))
	requireNotes(t, ask(closed, "all", "GET", "/v1/notes/a", nil), http.StatusServiceUnavailable)
	w := ask(closed, "all", "GET", "/v1/sessions/s", nil)
	requireNative(t, w, http.StatusServiceUnavailable, "log_unavailable")
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	require.JSONEq(t, `{"status":"ok"}`, ask(closed, "", "GET", "/healthz", nil).Body.String())
	ready := ask(closed, "", "GET", "/readyz", nil)
	require.Equal(t, http.StatusServiceUnavailable, ready.Code)
	require.JSONEq(t, `{"status":"not ready","checks":{"log":{"ok":false,"reason":"come again"}}}`, ready.Body.String())
}

// Errors of a route outside the prefixes of its surface would have another surface's form.
func TestARouteOutsideItsSurfaceIsRefused(t *testing.T) {
	t.Parallel()
	s := notes(nil)
	s.Routes[0].Path = "/v1/else"
	require.Panics(t, func() { wire.New(wire.Config{}).Mount(s) })
}

// What no surface has is not found, in no form of ours.
func TestWithoutASurfaceNothingIsFound(t *testing.T) {
	t.Parallel()
	require.Equal(t, http.StatusNotFound, ask(wire.New(wire.Config{}), "", "GET", "/v1/notes", nil).Code)
}

// wire knows callers and their scopes, and no noun of ours.
func TestImports(t *testing.T) {
	t.Parallel()
	out := must.Get(exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output())(t)
	for line := range strings.Lines(string(out)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "github.com/turnledger/turnledger/"); ok {
			require.Contains(t, []string{"services/access", "services/httpapi/wire"}, rest)
		}
	}
}

func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }

func TestCheckListen(t *testing.T) {
	t.Parallel()
	for addr, alone := range map[string]bool{
		"127.0.0.1:8480": true, "127.8.9.1:80": true, "[::1]:8480": true, "localhost:8480": true,
		"[::ffff:127.0.0.1]:1": true,
		"0.0.0.0:8480":         false, ":8480": false, "[::]:8480": false, "10.0.0.1:8480": false,
		"example.org:8480":        false,
		"localhost.example.org:1": false,
	} {
		err := wire.CheckListen(addr, false)
		if alone {
			require.NoError(t, err, addr)
		} else {
			require.ErrorIs(t, err, wire.ErrOpen, addr)
		}
		require.NoError(t, wire.CheckListen(addr, true), addr)
	}
	for _, addr := range []string{"", "8480", "127.0.0.1"} {
		require.Error(t, wire.CheckListen(addr, true), addr)
	}
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	return must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
}

// A request that does not end in time is reported, and does not keep the process.
func TestStoppingHasADeadline(t *testing.T) {
	t.Parallel()
	l := listen(t)
	under, release, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		defer close(done)
		close(under)
		<-release
		// The connection is closed by now. The server notices that a moment later, where it reads in the background.
		select {
		case <-r.Context().Done():
		case <-time.After(hang.Limit):
			t.Error("the request outlived its connection")
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- wire.Serve(ctx, l, handler, wire.ServerConfig{Drain: 20 * time.Millisecond}) }()
	go func() {
		resp, err := http.Get("http://" + l.Addr().String())
		if err == nil {
			_ = resp.Body.Close()
		}
	}()
	<-under
	stop()
	require.ErrorContains(t, <-ended, "under way")
	close(release)
	<-done
}

func TestAListenerThatFailsEndsTheRun(t *testing.T) {
	t.Parallel()
	l := listen(t)
	require.NoError(t, l.Close())
	require.Error(t, wire.Serve(t.Context(), l, http.NotFoundHandler(), wire.ServerConfig{}))
}

// safe is an error whose whole text is the program's.
type safe struct{}

func (safe) Error() string    { return "my secret" }
func (safe) SafeText() string { return "401" }

// TestWordsOfAnErrorHoldNoText: a log gets the parts of an error that the program, the network or PostgreSQL wrote,
// each once, and never what a client sent.
func TestWordsOfAnErrorHoldNoText(t *testing.T) {
	t.Parallel()
	away, secret := errors.New("the log is away"), errors.New("sent: my secret")
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for name, row := range map[string]struct {
		err  error
		want string
	}{
		"known":           {fmt.Errorf("read %q: %w", "my secret", away), "the log is away"},
		"known and texts": {fmt.Errorf("%w: %w", away, secret), "the log is away"},
		"known twice":     {fmt.Errorf("%w: %w", away, fmt.Errorf("again: %w", away)), "the log is away"},
		"a deadline":      {fmt.Errorf("%w: %w", secret, context.DeadlineExceeded), "context deadline exceeded"},
		"the network":     {errors.Join(away, secret, dial), "the log is away: dial tcp: connection refused"},
		"PostgreSQL":      {fmt.Errorf("x: %w", &pgconn.PgError{Code: "23505", Detail: "my secret"}), "SQLSTATE 23505"},
		"a model":         {fmt.Errorf("%w: %w", away, safe{}), "the log is away: 401"},
		"nothing known":   {fmt.Errorf("read: %w", secret), "*errors.errorString"},
	} {
		require.Equal(t, row.want, wire.SafeText(row.err, away), name)
	}
}

// Profiles are for this machine, and hold no command line, which may have keys in it.
func TestProfiles(t *testing.T) {
	t.Parallel()
	for _, open := range []string{"0.0.0.0:0", "[::]:0", ":6060", "192.0.2.1:6060", "example.org:6060"} {
		must.Fail(wire.OpenProfiles(t.Context(), open))(t, wire.ErrProfilesOpen, open)
	}
	require.ErrorContains(t, must.Err(wire.OpenProfiles(t.Context(), "6060")), "host:port")

	server := must.Get(wire.OpenProfiles(t.Context(), "127.0.0.1:0"))(t)
	defer func() { require.NoError(t, server.Close()) }()
	get := func(host, path string) (int, string) {
		r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+server.Addr+path, nil))(t)
		r.Host = host
		resp := must.Get(http.DefaultClient.Do(r))(t)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, errors.Join(err, resp.Body.Close()))
		return resp.StatusCode, string(body)
	}
	status, body := get("", "/debug/pprof/goroutine?debug=1")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "TestProfiles")
	status, _ = get("", "/debug/pprof/cmdline")
	require.Equal(t, http.StatusNotFound, status)
	status, _ = get("rebound.example.org", "/debug/pprof/goroutine?debug=1")
	require.Equal(t, http.StatusForbidden, status)
}
