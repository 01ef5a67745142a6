package openai_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/answer"
	"github.com/turnledger/turnledger/services/httpapi/openai/complete"
	"github.com/turnledger/turnledger/services/httpapi/openai/respond"
)

const onDisconnect = "X-Turnledger-On-Disconnect"

// What becomes of an answer whose client has gone is what the call says, else the deployment, else its surface.
func TestAHangUpDoesWhatIsSaid(t *testing.T) {
	t.Parallel()
	const completion = `{"messages":[{"role":"user","content":"q"}],"stream":true}`
	const response, background = `{"input":"q","stream":true}`, `{"input":"q","stream":true,"background":true}`
	for name, c := range map[string]struct {
		path, body, says string
		deployment       services.OnDisconnect
		ends             bool
	}{
		"completion":                 {path: completions, body: completion, ends: true},
		"completion that goes on":    {path: completions, body: completion, says: "continue"},
		"completions go on":          {path: completions, body: completion, deployment: "continue"},
		"a call against its server":  {completions, completion, "stop", "continue", true},
		"response":                   {path: "/v1/responses", body: response},
		"response that stops":        {path: "/v1/responses", body: response, says: "stop", ends: true},
		"responses stop":             {path: "/v1/responses", body: response, deployment: "stop", ends: true},
		"response in the background": {path: "/v1/responses", body: background, says: "stop"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &slow{word: "half", ended: make(chan struct{}), asked: make(chan struct{}, 1)}
			gone := make(chan struct{}, 1)
			s := direct(start(t, answeredAs(m, func(a *answer.Config) {
				a.OnDisconnect, a.Timeout = c.deployment, 2*time.Second
			}), func(s *stack) { s.cfg.Responses = leaving{s.cfg.Responses, gone} }))
			ctx, hangUp := context.WithCancel(t.Context())
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+c.path, strings.NewReader(c.body))
			require.NoError(t, err)
			r.Header.Set("X-Turnledger-Session", "s")
			if c.says != "" {
				r.Header.Set(onDisconnect, c.says)
			}
			resp, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			defer func() { _ = resp.Body.Close() }()
			readTo(t, resp.Body, `"half"`)
			began := time.Now()
			hangUp()
			<-gone
			<-m.ended
			require.Equal(t, c.ends, time.Since(began) < time.Second)
		})
	}
	s := start(t, answeredBy(answer.Echo{}))
	for path, body := range map[string]string{completions: completion, "/v1/responses": `{"input":"q"}`} {
		a := s.do("POST", path, body, onDisconnect, "never")
		require.Equal(t, http.StatusBadRequest, a.status, a.raw)
		require.Contains(t, a.raw, onDisconnect)
	}
}

// revocable is a ring whose keys are taken away.
type revocable struct {
	ring
	mu sync.Mutex
}

func (r *revocable) Authenticate(ctx context.Context, token string) (access.Caller, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ring.Authenticate(ctx, token)
}

// A stream ends with the key of its caller, whoever it is: who asked, and who watches.
func TestAStreamEndsWithItsKey(t *testing.T) {
	t.Parallel()
	const completion = `{"messages":[{"role":"user","content":"q"}],"stream":true}`
	for name, c := range map[string]struct{ path, body string }{
		"completion": {completions, completion},
		"response":   {"/v1/responses", `{"input":"q","stream":true}`},
		"watched":    {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			held := make(chan struct{})
			defer close(held)
			_, m := scripted(t, func([]string) modeltest.Answer {
				return modeltest.Answer{Text: "One two.", Hold: held}
			})
			keys := &revocable{ring: ring{"k": {Name: "k", Scopes: all}, "other": {Name: "other", Scopes: all}}}
			s := direct(start(t, answeredBy(m), func(s *stack) { s.wire.Open, s.wire.Auth = false, keys }))
			open := func(key, method, path, body string) io.Reader {
				r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
				require.NoError(t, err)
				r.Header.Set("Authorization", "Bearer "+key)
				resp, err := http.DefaultClient.Do(r)
				require.NoError(t, err)
				t.Cleanup(func() { _ = resp.Body.Close() })
				return resp.Body
			}
			var from io.Reader
			if c.path == "" {
				id := idIn(readTo(t, open("other", "POST", "/v1/responses", `{"input":"q","stream":true}`), `"One `))
				from = open("k", "GET", "/v1/responses/"+id+"?stream=true", "")
			} else {
				from = open("k", "POST", c.path, c.body)
			}
			readTo(t, from, `"One `)
			keys.mu.Lock()
			delete(keys.ring, "k")
			keys.mu.Unlock()
			_, err := io.Copy(io.Discard, from)
			require.True(t, err == nil || errors.Is(err, io.ErrUnexpectedEOF), "%v", err)
		})
	}
}

// A completion whose model is silent for long has heartbeats before its first chunk, and then its refusal as a chunk.
func TestACompletionBeatsBeforeItsFirstChunk(t *testing.T) {
	t.Parallel()
	silent := make(chan struct{})
	m := refusing{silent}
	s := direct(start(t, answeredBy(m), func(s *stack) { s.wire.Heartbeat = 20 * time.Millisecond }))
	r := s.opened("POST", completions, `{"messages":[{"role":"user","content":"q"}],"stream":true}`)
	readTo(t, r, ": heartbeat\n\n")
	close(silent)
	said := rest(t, r)
	require.Contains(t, said, `data: {"error":`)
	require.NotContains(t, said, "[DONE]")
	at := s.do("POST", completions, `{"messages":[{"role":"user","content":"q"}],"stream":true}`)
	require.Equal(t, http.StatusBadGateway, at.status, "who refuses at once is heard")
}

// refusing is a model that fails once a channel is closed.
type refusing struct{ at chan struct{} }

func (refusing) Name() string { return "m" }

func (refusing) Format() services.Format { return services.OpenAI }

func (m refusing) Answer(ctx context.Context, _ services.Prompt, _ func(services.AnswerPiece),
) (services.ModelAnswer, error) {
	select {
	case <-m.at:
	case <-ctx.Done():
	}
	return services.ModelAnswer{}, errors.New("refused")
}

// A chat completion that a process watches goes on without its client, and ends once that process is killed.
func TestAKilledWatcherKeepsNoCompletion(t *testing.T) {
	t.Parallel()
	m := &slow{word: "half", ended: make(chan struct{}), asked: make(chan struct{}, 1)}
	server := natstest.Server(t)
	a, b := startBeside(t, server, m, streamKey), startBeside(t, server, m, streamKey)
	gone := make(chan struct{}, 1)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.url+completions,
		strings.NewReader(`{"messages":[{"role":"user","content":"q"}],"stream":true}`))
	require.NoError(t, err)
	r.Header.Set("X-Turnledger-Session", "s")
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	readTo(t, resp.Body, `"half"`)
	seen := make(chan struct{}, 100)
	go func() {
		defer close(gone)
		watching, _ := b.cfg.Responses.(services.RunningAnswers)
		_ = watching.Watch(t.Context(), "s", uuid.Nil, hears{pieces: seen})
	}()
	<-seen
	_ = resp.Body.Close()
	select {
	case <-m.ended:
		require.Fail(t, "the answer ended, and somebody watched")
	case <-time.After(4 * time.Second): // longer than a watcher is served that is lost
	}
	b.lose()
	<-m.ended
	<-gone
}

// A watcher that reads nothing is given up, while the answer goes on for others.
func TestAWatcherThatReadsNothingIsGivenUp(t *testing.T) {
	t.Parallel()
	m := &pouring{slow: slow{ended: make(chan struct{}), asked: make(chan struct{}, 1)}}
	left := make(chan error, 1)
	s := direct(start(t, answeredBy(m), func(s *stack) {
		s.wire.StreamPatience, s.cfg.Responses = 100*time.Millisecond, noting{s.cfg.Responses, left}
	}))
	id := s.must("POST", "/v1/responses", `{"input":"q","background":true}`)["id"].(string)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = fmt.Fprintf(conn, "GET /v1/responses/%s?stream=true HTTP/1.1\r\nHost: localhost\r\n\r\n", id)
	require.NoError(t, err)
	require.ErrorIs(t, <-left, context.Canceled)
	require.Equal(t, "in_progress", s.must("GET", "/v1/responses/"+id, "")["status"])
	s.do("POST", "/v1/responses/"+id+"/cancel", "") // it is too large to be recorded
	<-m.ended
}

// pouring is a model whose answer is more than a connection holds, and then goes on in silence.
type pouring struct{ slow }

func (m *pouring) Answer(
	ctx context.Context, p services.Prompt, emit func(services.AnswerPiece),
) (services.ModelAnswer, error) {
	part := services.AnswerPart{Kind: services.PartText, Text: strings.Repeat("much ", 20_000)}
	for range 100 {
		emit(services.AnswerPiece{AnswerPart: part})
	}
	return m.slow.Answer(ctx, p, emit)
}

// noting tells how watching a response ended.
type noting struct {
	services.Responder

	left chan error
}

func (n noting) WatchResponse(ctx context.Context, id string, who services.Caller, to services.Listener) error {
	err := n.Responder.WatchResponse(ctx, id, who, to)
	n.left <- err
	return err
}

// What it costs to write an answer grows with its length, not with the square of it.
func TestAStreamGrowsWithItsAnswer(t *testing.T) {
	completion, err := complete.Parse([]byte(`{"messages":[{"role":"user","content":"q"}],"stream":true}`))
	require.NoError(t, err)
	for name, made := range map[string]func() services.Listener{
		"responses":   func() services.Listener { return respond.NewStream(nil, func(...respond.Event) {}) },
		"completions": func() services.Listener { return completion.NewStream(func(any) {}) },
	} {
		costs := func(pieces int) uint64 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			to := made()
			to.Begun(services.Step{Mint: func(string, string, int) string { return "id" }})
			for range pieces {
				to.Piece(services.AnswerPiece{AnswerPart: services.AnswerPart{Text: "one word and more "}})
			}
			runtime.ReadMemStats(&after)
			return after.TotalAlloc - before.TotalAlloc
		}
		short, long := costs(2000), costs(20_000)
		require.Less(t, long, 20*short, name)
	}
}

// hears notes the pieces of an answer.
type hears struct {
	services.Quiet

	pieces chan struct{}
}

func (h hears) Piece(services.AnswerPiece) { h.pieces <- struct{}{} }

// An answer that breaks off in a panic is over: the same call again is answered.
func TestAPanicEndsAnAnswer(t *testing.T) {
	t.Parallel()
	m := &breaking{}
	s := start(t, answeredBy(m))
	const body, retries = `{"input":"q"}`, "Idempotency-Key"
	require.Equal(t, http.StatusInternalServerError, s.do("POST", "/v1/responses", body, retries, "k").status)
	require.Equal(t, "completed", s.must("POST", "/v1/responses", body, retries, "k")["status"])
}

// breaking is a model that panics the first time.
type breaking struct {
	answer.Echo

	times atomic.Int32
}

func (m *breaking) Answer(
	ctx context.Context, p services.Prompt, emit func(services.AnswerPiece),
) (services.ModelAnswer, error) {
	if m.times.Add(1) == 1 {
		panic("a bug")
	}
	return m.Echo.Answer(ctx, p, emit)
}
