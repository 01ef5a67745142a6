package openai_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/answer"
)

// direct serves the APIs of a stack without the check of their answers, which keeps streams back until they end.
func direct(s *stack) *stack {
	server := httptest.NewServer(s.api)
	s.t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// opened sends a request whose answer is a stream.
func (s *stack) opened(method, path, body string) io.Reader {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(s.t, err)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp.Body
}

func rest(t *testing.T, r io.Reader) string {
	t.Helper()
	raw, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(raw)
}

// readTo reads until a text has come.
func readTo(t testing.TB, r io.Reader, text string) (read string) {
	t.Helper()
	for b := make([]byte, 1); !strings.HasSuffix(read, text); read += string(b) {
		_, err := io.ReadFull(r, b)
		require.NoError(t, err, read)
	}
	return read
}

// idIn returns the first id of a response in a text.
func idIn(text string) string {
	_, id, _ := strings.Cut(text, `"id":"resp_`)
	id, _, _ = strings.Cut(id, `"`)
	return "resp_" + id
}

// Whoever watches a response, from whatever event on, has exactly what the call that asked for it had: while it is
// made, after its end, and in another process.
func TestAWatchedResponseIsTheSame(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]modeltest.Answer{
		"text":      {Text: "One two three, übermorgen vier."},
		"reasoning": {Thoughts: "I think so", Text: "Yes it is."},
		"calls": {Text: "Let me see.", Calls: []modeltest.Call{
			{ID: "call_1", Name: "weather", Arguments: `{"city":"Bonn"}`},
			{ID: "call_2", Name: "weather", Arguments: `{"city":"Ulm"}`},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			held := make(chan struct{})
			answer.Hold = held
			_, m := scripted(t, func([]string) modeltest.Answer { return answer })
			log := natstest.Log(t, 1)
			s := direct(startOn(t, log, answeredBy(m)))
			first := s.opened("POST", "/v1/responses", `{"input":"q","stream":true,"tools":[{"type":"function",`+
				`"name":"weather","parameters":{"type":"object"}}]}`)
			told := readTo(t, first, "output_text.delta\n")
			path := "/v1/responses/" + idIn(told) + "?stream=true"
			live, later := s.opened("GET", path, ""), s.opened("GET", path+"&starting_after=3", "")
			seen := readTo(t, live, "output_text.delta\n")
			require.Equal(t, "in_progress", s.must("GET", "/v1/responses/"+idIn(told), "")["status"])
			close(held)
			told += rest(t, first)
			require.Equal(t, told, seen+rest(t, live))
			events := strings.SplitAfter(told, "\n\n")
			require.Equal(t, strings.Join(events[4:], ""), rest(t, later))
			require.Contains(t, told, "response.completed")
			other := startOn(t, log, answeredBy(m))
			for _, s := range []*stack{s, other} {
				require.Equal(t, told, rest(t, s.opened("GET", path, "")))
				for n := range len(events) - 1 {
					require.Equal(t, strings.Join(events[n+1:], ""),
						rest(t, s.opened("GET", fmt.Sprint(path, "&starting_after=", n), "")))
				}
			}
		})
	}
}

// A response that is cancelled ends with what is there, and stays so.
func TestAResponseIsCancelled(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	defer close(held)
	_, m := scripted(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "One two.", Hold: held} })
	s := direct(start(t, answeredBy(m)))
	first := s.opened("POST", "/v1/responses", `{"input":"q","stream":true}`)
	told := readTo(t, first, "output_text.delta\n")
	path := "/v1/responses/" + idIn(told)
	for range 2 {
		out := s.must("POST", path+"/cancel", "")
		require.Equal(t, "cancelled", out["status"])
		require.Equal(t, []string{"One "}, texts(out["output"].([]any)))
	}
	told += rest(t, first)
	events := strings.SplitAfter(told, "\n\n")
	require.Contains(t, events[len(events)-2], "event: response.incomplete\n")
	require.Contains(t, events[len(events)-2], `"status":"cancelled"`)
	require.Equal(t, told, rest(t, s.opened("GET", path+"?stream=true", "")))
}

// askedTo sends a request whose answer is a stream, and reads it until a text has come; the caller can hang up.
func (s *stack) askedTo(path, body, until string) (told string, hangUp func()) {
	s.t.Helper()
	ctx, hangUp := context.WithCancel(s.t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, strings.NewReader(body))
	require.NoError(s.t, err)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = resp.Body.Close() })
	return readTo(s.t, resp.Body, until), hangUp
}

// Whoever watches a response is told of its end also after the call that asked has hung up.
func TestAWatchedResponseEndsWithoutItsCaller(t *testing.T) {
	t.Parallel()
	held, gone := make(chan struct{}), make(chan struct{}, 10)
	_, m := scripted(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "One two.", Hold: held} })
	s := direct(start(t, answeredBy(m), func(s *stack) { s.cfg.Responses = leaving{s.cfg.Responses, gone} }))
	told, hangUp := s.askedTo("/v1/responses", `{"input":"q","stream":true}`, "text.delta\n")
	watches := s.opened("GET", "/v1/responses/"+idIn(told)+"?stream=true", "")
	readTo(t, watches, "output_text.delta\n")
	hangUp()
	<-gone
	close(held)
	require.Contains(t, rest(t, watches), "event: response.completed\n")
}

// Whoever may not read cancels a response all the same, and is shown none of its texts.
func TestWhoMayNotReadCancelsAResponse(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	body := `{"input":"q","instructions":"a secret"}`
	path := "/v1/responses/" + s.as("all", "POST", "/v1/responses", body).body["id"].(string) + "/cancel"
	for key, shown := range map[string]int{"key-turns:write": 0, "all": 1} {
		a := s.as(key, "POST", path, "")
		require.Equal(t, http.StatusOK, a.status, a.raw)
		require.Len(t, a.body["output"], shown, key)
		require.Equal(t, shown == 1, strings.Contains(a.raw, "a secret"), key)
	}
}

// A response in the background is made without its caller.
func TestAResponseInTheBackground(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	_, m := scripted(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "One two.", Hold: held} })
	s := start(t, answeredBy(m))
	out := s.must("POST", "/v1/responses", `{"input":"q","background":true}`)
	require.Equal(t, "in_progress", out["status"])
	require.Equal(t, true, out["background"])
	path := "/v1/responses/" + out["id"].(string)
	require.Equal(t, "in_progress", s.must("GET", path, "")["status"])
	for n := range 31 {
		s.must("POST", "/v1/responses", fmt.Sprintf(`{"input":"q%d","background":true}`, n))
	}
	busy := s.do("POST", "/v1/responses", `{"input":"one more","background":true}`)
	require.Equal(t, http.StatusTooManyRequests, busy.status, busy.raw)
	close(held)
	hang.Until(t, func() bool { return s.must("GET", path, "")["status"] == "completed" })
	hang.Until(t, func() bool {
		return s.do("POST", "/v1/responses", `{"input":"one more","background":true}`).status == http.StatusOK
	})
	refused := s.do("POST", "/v1/responses", `{"input":"q","background":true,"store":false}`)
	require.Equal(t, http.StatusBadRequest, refused.status)
}

// unfinished is a model that tells pieces, and then waits until its answer is ended. A message "next" is answered.
type unfinished struct {
	saying

	pieces []services.AnswerPiece
	told   chan struct{}
}

func (m *unfinished) Answer(
	ctx context.Context, p services.Prompt, emit func(services.AnswerPiece),
) (services.ModelAnswer, error) {
	if strings.Contains(string(p.Messages[len(p.Messages)-1]), "next") {
		part := services.AnswerPart{Kind: services.PartText, Text: "ok"}
		emit(services.AnswerPiece{AnswerPart: part})
		return services.ModelAnswer{Finish: services.FinishStop, Parts: []services.AnswerPart{part}}, nil
	}
	for _, one := range m.pieces {
		emit(one)
	}
	m.told <- struct{}{}
	<-ctx.Done()
	return services.ModelAnswer{}, ctx.Err()
}

// A call that was cut off is no part of an answer that ended early.
func TestACallThatWasCutOffIsNotRecorded(t *testing.T) {
	t.Parallel()
	text := services.AnswerPart{Kind: services.PartText, Text: "Let me see."}
	whole := services.AnswerPart{Kind: services.PartCall, CallID: "w", Name: "f", Text: `{"a":1}`}
	cut := services.AnswerPart{Kind: services.PartCall, CallID: "c", Name: "f", Text: `{"a":`}
	custom := services.AnswerPart{Kind: services.PartCustomCall, CallID: "u", Name: "g", Text: "hal"}
	for _, last := range []services.AnswerPart{cut, custom} {
		for _, interrupted := range []bool{true, false} {
			m := &unfinished{told: make(chan struct{}, 1)}
			for n, p := range []services.AnswerPart{text, whole, last} {
				m.pieces = append(m.pieces, services.AnswerPiece{Part: n, AnswerPart: p})
			}
			s := direct(start(t, answeredBy(m)))
			id := s.begin()
			in := `,"conversation":"` + id + `","stream":true}`
			first := s.opened("POST", "/v1/responses", `{"input":"q"`+in)
			told := readTo(t, first, "output_text.delta\n")
			<-m.told
			if interrupted {
				s.must("POST", "/v1/responses", `{"input":"next","conversation":"`+id+`"}`,
					"X-Turnledger-On-Pending", "interrupt")
			} else {
				s.must("POST", "/v1/responses/"+idIn(told)+"/cancel", "")
			}
			rest(t, first)
			out := s.must("GET", "/v1/responses/"+idIn(told), "")["output"].([]any)
			require.Equal(t, []string{"Let me see.", "function_call"}, texts(out))
			require.Equal(t, "w", out[1].(map[string]any)["call_id"])
			for _, one := range out {
				require.Equal(t, "incomplete", one.(map[string]any)["status"])
			}
		}
	}
}

// A completion ends once the last who waits for it has left: a second caller, or one who watches.
func TestTheLastToLeaveEndsACompletion(t *testing.T) {
	t.Parallel()
	for _, watched := range []bool{true, false} {
		m := &slow{word: "half", ended: make(chan struct{}), asked: make(chan struct{}, 1)}
		gone, begun := make(chan struct{}, 10), make(chan struct{}, 10)
		var answers *answer.Service
		s := direct(start(t, answeredBy(m), func(s *stack) {
			answers, _ = s.cfg.Responses.(*answer.Service)
			s.cfg.Responses = telling{leaving{s.cfg.Responses, gone}, begun}
		}))
		body := `{"messages":[{"role":"user","content":"q"}],"stream":true,"metadata":{"session_id":"s"}}`
		_, hangUp := s.askedTo(completions, body, "half")
		<-begun
		ctx, leave := context.WithCancel(t.Context())
		if watched {
			h := &hearing{heard: make(chan struct{})}
			go func() { _ = answers.Watch(ctx, "s", uuid.Nil, h) }()
			<-h.heard
		} else {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+completions, strings.NewReader(body))
			require.NoError(t, err)
			r.Header.Set("X-Stainless-Retry-Count", "1")
			go func() {
				if resp, err := http.DefaultClient.Do(r); err == nil {
					_ = resp.Body.Close()
				}
			}()
			<-begun
		}
		hangUp()
		<-gone
		select {
		case <-m.ended:
			require.Fail(t, "somebody waits for it")
		case <-time.After(50 * time.Millisecond):
		}
		leave()
		select {
		case <-m.ended:
		case <-time.After(hang.Limit):
			require.Fail(t, "it goes on for nobody", "watched: %t", watched)
		}
	}
}

// telling says when an answer has begun for a caller.
type telling struct {
	services.Responder

	begun chan struct{}
}

func (b telling) Respond(
	ctx context.Context, a services.StepAsk, to services.Listener,
) (services.Answered, error) {
	return b.Responder.Respond(ctx, a, begins{to, b.begun})
}

type begins struct {
	services.Listener

	begun chan struct{}
}

func (b begins) Begun(s services.Step) {
	b.Listener.Begun(s)
	b.begun <- struct{}{}
}

// hearing says when it has heard a piece.
type hearing struct {
	services.Quiet

	heard chan struct{}
	once  sync.Once
}

func (h *hearing) Piece(services.AnswerPiece) { h.once.Do(func() { close(h.heard) }) }
