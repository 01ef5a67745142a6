package v1_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/services/history"
	"github.com/turnledger/turnledger/services/ratelimit"
	"github.com/turnledger/turnledger/services/read"
)

var contextMembers = []string{
	"dropped_turns", "history_messages", "history_turns", "memory_snippet", "messages", "position", "rewrite_fallback",
	"rewritten_query", "session_found", "source", "summary", "warnings",
}

//conformance:f9
func TestContext(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, s *stack) {
		for i := range 12 {
			s.record("s", fmt.Sprint(i), fmt.Sprint("q", i), fmt.Sprint("a", i))
		}
		open := s.record("s", "open", "pending", "")
		got := s.ok(http.StatusOK, "POST", "/v1/sessions/s/context", map[string]any{"message": "now",
			"system_prompt": "Be brief.", "max_messages": 4})
		require.Equal(t, contextMembers, keys(got))
		require.Equal(t, []string{"Be brief.", "q10", "a10", "q11", "a11", "now"}, column(got["messages"], "content"))
		require.Equal(t, []string{"system", "user", "assistant", "user", "assistant", "user"}, column(got["messages"],
			"role"))
		require.EqualValues(t, 4, got["history_messages"])
		require.EqualValues(t, 2, got["history_turns"])
		require.EqualValues(t, 10, got["dropped_turns"])
		require.Equal(t, true, got["session_found"])
		require.Equal(t, "0:25", got["position"])
		require.Equal(t, []any{}, got["warnings"])

		got = s.ok(http.StatusOK, "POST", "/v1/sessions/s/context", map[string]any{"message": "now",
			"include_pending": true, "max_messages": 3})
		require.Equal(t, []string{"q11", "a11", "pending", "now"}, column(got["messages"], "content"))
		got = s.ok(http.StatusOK, "POST", "/v1/sessions/s/context", map[string]any{"message": "pending",
			"include_pending": true, "max_messages": 2, "turn_id": open})
		require.Equal(t, []string{"q11", "a11", "pending"}, column(got["messages"], "content"))

		got = s.ok(http.StatusOK, "POST", "/v1/sessions/s/context", map[string]any{"message": "now",
			"as_of": map[string]any{"position": "0:4"}})
		require.Equal(t, []string{"q0", "a0", "q1", "a1", "now"}, column(got["messages"], "content"))
		got = s.ok(http.StatusOK, "POST", "/v1/sessions/s/context", map[string]any{"message": "now",
			"as_of": map[string]any{"time": "2001-01-01T00:00:00Z"}})
		require.Equal(t, []string{"now"}, column(got["messages"], "content"))
	})
}

func TestContextInTheAnthropicForm(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.record("s", "r", "q", "a")
	got := s.ok(http.StatusOK, "POST", "/v1/sessions/s/context", map[string]any{"message": "now",
		"system_prompt": "Be brief.", "format": "anthropic"})
	require.Equal(t, "Be brief.", got["system"])
	require.Equal(t, []string{"user", "assistant", "user"}, column(got["messages"], "role"))
	got = s.ok(http.StatusOK, "POST", "/v1/sessions/s/context", map[string]any{"message": "now", "format": "anthropic"})
	require.Equal(t, "", got["system"])
}

func TestContextOfAnUnknownSession(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, s *stack) {
		got := s.ok(http.StatusOK, "POST", "/v1/sessions/nobody/context", map[string]any{"message": "now"})
		require.Equal(t, false, got["session_found"])
		require.Len(t, got["messages"], 1)
		require.Zero(t, s.head())
	})
}

//conformance:s3 s8 s9
func TestContextOfTheClientsOwnHistory(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.record("s", "r", "q", "a")
	got := s.ok(http.StatusOK, "POST", "/v1/sessions/s/context",
		`{"message":"now","conversation_history":[{"role":"user","content":"mine"},null,7,"x",{"role":"user"},{"role":"assistant","content":"yours"}]}`)
	require.Equal(t, []string{"mine", "yours", "now"}, column(got["messages"], "content"))
	require.Equal(t, "request", got["source"])
	require.Nil(t, got["position"])
	got = s.ok(http.StatusOK, "POST", "/v1/sessions/s/context", `{"message":"now","conversation_history":[]}`)
	require.Equal(t, []string{"now"}, column(got["messages"], "content"))
	got = s.ok(http.StatusOK, "POST", "/v1/sessions/s/context", `{"message":"now","conversation_history":null}`)
	require.Equal(t, []string{"q", "a", "now"}, column(got["messages"], "content"))
}

//conformance:f1 f7
func TestIdleTimeout(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.record("s", "r", "q", "a")
	for idle, want := range map[string]int{"30m": 3, "1ns": 1, "off": 3, "0s": 3, "7d": 3} {
		got := s.ok(http.StatusOK, "POST", "/v1/sessions/s/context", map[string]any{"message": "now",
			"idle_timeout": idle})
		require.Len(t, got["messages"], want, idle)
	}
}

// What a write acknowledged, the next read sees, through whatever view.
func TestReadsSeeTheLastWrite(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, s *stack) {
		for i := range 50 {
			s.record("s", fmt.Sprint(i), fmt.Sprint("q", i), fmt.Sprint("a", i))
			got := s.ok(http.StatusOK, "POST", "/v1/sessions/s/context", map[string]any{"message": "now",
				"max_messages": 2})
			require.Equal(t, []string{fmt.Sprint("q", i), fmt.Sprint("a", i), "now"}, column(got["messages"],
				"content"))
			got = s.ok(http.StatusOK, "GET", "/v1/sessions/s/turns?limit=1", nil)
			require.Equal(t, []string{fmt.Sprint("a", i)}, column(got["turns"], "answer_neutral"))
		}
	})
}

// brokenView is a view whose backend is down.
type brokenView struct{ read.View }

func (brokenView) Load(context.Context, string, int, int) (recent.Snapshot, error) {
	return recent.Snapshot{}, errors.New("connection refused")
}

func TestABrokenViewIsNeverNoHistory(t *testing.T) {
	t.Parallel()
	s := start(t, func(_ *config, _ *history.Config, rc *read.Config) { rc.View = brokenView{} })
	s.record("s", "r", "q", "a")
	for _, path := range []string{"/turns", "/turns?status=all", "/history", ""} {
		a := s.do("GET", "/v1/sessions/s"+path, nil)
		require.Equal(t, http.StatusOK, a.status)
		require.NotContains(t, strings.ReplaceAll(string(a.raw), `"dropped_metadata":[]`, ``), `:[]`, path)
		require.NotContains(t, string(a.raw), `"turns":0`, path)
	}
	require.Equal(t, "log", s.ok(http.StatusOK, "POST", "/v1/sessions/s/context", `{"message":"m"}`)["source"])
}

func TestMinPosition(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.record("s", "r", "q", "a")
	for _, call := range []struct{ method, path, body string }{
		{"GET", "/v1/sessions/s?", ""}, {"GET", "/v1/sessions/s/turns?", ""}, {"GET", "/v1/sessions/s/history?", ""},
		{"POST", "/v1/sessions/s/context?", `{"message":"m"}`},
	} {
		s.ok(http.StatusOK, call.method, call.path+"min_position=0:2", call.body)
		s.ok(http.StatusOK, call.method, call.path+"min_position="+url.QueryEscape("0:2"), call.body)
		a := s.do(call.method, call.path+"min_position=0:3", call.body)
		requireProblem(t, a, http.StatusServiceUnavailable, "position_not_reached")
		require.NotEmpty(t, a.header.Get("Retry-After"))
	}
}

func TestAsOfNamesAPlaceOfTheSession(t *testing.T) {
	t.Parallel()
	s := startOn(t, natstest.Log(t, 2))
	s.record("s", "r", "q", "a")
	mine := events.Partition("s", 2)
	ask := func(partition, seq int) answer {
		return s.do("POST", "/v1/sessions/s/context", fmt.Sprintf(`{"message":"m","as_of":{"position":"%d:%d"}}`, partition, seq))
	}
	require.Len(t, ask(mine, 2).body["messages"], 3)
	requireProblem(t, ask(mine, 3), http.StatusServiceUnavailable, "position_not_reached")
	requireProblem(t, ask(1-mine, 1), http.StatusUnprocessableEntity, "invalid_argument", "as_of.position")
	a := s.do("POST", fmt.Sprintf("/v1/sessions/s/context?min_position=%d:3", mine), `{"message":"m","as_of":{"time":"2026-01-01T00:00:00Z"}}`)
	requireProblem(t, a, http.StatusServiceUnavailable, "position_not_reached")
}

// TestARateGoesByTheSessionsLink: who names others, or nobody, is held to the rate of the
// identity whose session it is.
//
//conformance:h28
func TestARateGoesByTheSessionsLink(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	s := startOn(t, log, func(c *config, _ *history.Config, _ *read.Config) {
		c.LinkReader = read.New(log, read.Config{Rules: rules})
		c.Limiter = ratelimit.New(ratelimit.Rate{}, ratelimit.Rate{Requests: 2, Per: time.Hour}, nil)
	})
	for _, session := range []string{"one", "two"} {
		s.ok(http.StatusOK, "PUT", "/v1/sessions/"+session+"/identity", `{"identity_id":"ada"}`)
	}
	build := func(session, body string) int { return s.do("POST", "/v1/sessions/"+session+"/context", body).status }
	require.Equal(t, http.StatusOK, build("one", `{"message":"m","identity_id":"eve"}`))
	require.Equal(t, http.StatusOK, build("two", `{"message":"m"}`))
	require.Equal(t, http.StatusTooManyRequests, build("one", `{"message":"m"}`))
	require.Equal(t, http.StatusTooManyRequests, build("two", `{"message":"m","identity_id":"somebody new"}`))
	require.Equal(t, http.StatusTooManyRequests, build("unlinked", `{"message":"m","identity_id":"ada"}`))
	require.Equal(t, http.StatusOK, build("unlinked", `{"message":"m","identity_id":"eve"}`),
		"nothing was counted for her")
	require.Equal(t, http.StatusOK, build("unlinked", `{"message":"m"}`))
}

// TestAWindowHoldsAQuestionAndItsAnswer: what is too small is told the same, however small.
//
//conformance:i32
func TestAWindowHoldsAQuestionAndItsAnswer(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, s *stack) {
		for _, n := range []int{-1, 0, 1} {
			got := s.do("POST", "/v1/sessions/s/context", map[string]any{"message": "m", "max_messages": n})
			require.Equal(t, http.StatusUnprocessableEntity, got.status)
			require.Equal(t, "max_messages: must be at least 2, a question and its answer", got.body["detail"])
		}
	})
}
