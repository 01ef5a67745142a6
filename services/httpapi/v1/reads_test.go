package v1_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/ratelimit"
	"github.com/turnledger/turnledger/services/read"
)

var sessionMembers = []string{"created_at", "current_branch", "forked_from", "found", "identity_id", "last_active_at",
	"metadata", "pending", "position",
	"session_id", "title", "turns"}

// written are the members of an answer to a write on a session.
func written() []string { return slices.Insert(slices.Clone(sessionMembers), 2, "duplicate") }

func TestSession(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, s *stack) {
		unknown := s.ok(http.StatusOK, "GET", "/v1/sessions/nobody", nil)
		require.Equal(t, map[string]any{
			"session_id": "nobody", "identity_id": nil, "found": false, "turns": 0.0, "pending": 0.0,
			"created_at": nil, "last_active_at": nil, "position": "0:0", "title": nil, "metadata": map[string]any{},
			"forked_from": nil, "current_branch": nil,
		}, unknown)
		require.Zero(t, s.head())

		linked := s.ok(http.StatusOK, "PUT", "/v1/sessions/s/identity", map[string]any{"identity_id": "ada"})
		require.Equal(t, written(), keys(linked))
		require.Subset(t, linked, map[string]any{"identity_id": "ada", "found": true, "position": "0:1"})
		again := s.ok(http.StatusOK, "PUT", "/v1/sessions/s/identity", map[string]any{"identity_id": "ada"})
		require.Equal(t, linked["position"], again["position"])

		s.record("s", "r1", "q1", "a1")
		s.record("s", "r2", "q2", "")
		got := s.ok(http.StatusOK, "GET", "/v1/sessions/s", nil)
		require.Equal(t, sessionMembers, keys(got))
		require.Subset(t, got, map[string]any{"turns": 2.0, "pending": 1.0, "position": "0:4"})
		require.NotNil(t, got["last_active_at"])

		for range 2 {
			reset := s.ok(http.StatusOK, "POST", "/v1/sessions/s/reset", map[string]any{"reason": "new topic"})
			require.Equal(t, written(), keys(reset))
			require.Equal(t, "0:5", reset["position"])
		}
		page := s.ok(http.StatusOK, "GET", "/v1/sessions/s/turns?limit=1&status=all", nil)
		require.Equal(t, []string{"next_cursor", "turns"}, keys(page))
		page = s.ok(http.StatusOK, "GET", "/v1/sessions/s/turns?status=all&cursor="+page["next_cursor"].(string), nil)
		require.Equal(t, []string{"q1"}, column(page["turns"], "question_neutral"))
		require.Nil(t, page["next_cursor"])
	})
}

func numbered(prefix string, from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint(prefix, i))
	}
	return out
}

// A turn's position in a listing is that of its start, whatever came after.
func TestPositionsInListings(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.record("s", "r1", "q1", "a1")
	s.record("s", "r2", "q2", "a2")
	require.Equal(t, []string{"0:1", "0:3"}, column(s.ok(http.StatusOK, "GET", "/v1/sessions/s/turns", nil)["turns"],
		"position"))
}

func TestCountsAboveTheBoundsAreClamped(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.record("s", "r1", "q1", "a1")
	for _, n := range []string{"10001", "99999999999999999999999999"} {
		require.Len(t, s.ok(http.StatusOK, "GET", "/v1/sessions/s/turns?limit="+n, nil)["turns"], 1)
		require.Len(t, s.ok(http.StatusOK, "GET", "/v1/sessions/s/history?limit="+n, nil)["history"], 1)
		require.Len(t, s.ok(http.StatusOK, "POST", "/v1/sessions/s/context", `{"message":"m","max_messages":`+n+
			`,"max_tokens":1e300}`)["messages"], 3)
	}
	require.Len(t, s.ok(http.StatusOK, "POST", "/v1/sessions/s/context",
		`{"message":"m","max_messages":2.0}`)["messages"], 3)
}

//conformance:h57
func TestHistory(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, s *stack) {
		for i := range 30 {
			s.record("s", fmt.Sprint(i), fmt.Sprint("q", i), fmt.Sprint("a", i))
		}
		s.record("s", "open", "pending", "")
		got := s.ok(http.StatusOK, "GET", "/v1/sessions/s/history", nil)
		require.Equal(t, numbered("q", 10, 30), column(got["history"], "question_neutral"))
		require.Equal(t, numbered("a", 10, 30), column(got["history"], "answer_neutral"))
		require.Equal(t, []string{"answer_neutral", "question_neutral"},
			keys(got["history"].([]any)[0].(map[string]any)))
		require.Equal(t, []string{"q29"}, column(s.ok(http.StatusOK, "GET", "/v1/sessions/s/history?limit=1",
			nil)["history"], "question_neutral"))
		require.Equal(t, []any{}, s.ok(http.StatusOK, "GET", "/v1/sessions/nobody/history", nil)["history"])
	})
}

// After a silence an anonymous session begins anew for prompts, but its turns are
// still there.
func TestSilence(t *testing.T) {
	t.Parallel()
	later := func() time.Time { return time.Now().Add(25 * time.Hour) }
	s := start(t, func(c *config) { c.v1Config.Now = later })
	s.record("s", "r1", "q1", "a1")
	require.Empty(t, s.ok(http.StatusOK, "GET", "/v1/sessions/s/history", nil)["history"])
	require.Len(t, s.ok(http.StatusOK, "GET", "/v1/sessions/s/turns", nil)["turns"], 1)
	s.ok(http.StatusOK, "PUT", "/v1/sessions/s/identity", map[string]any{"identity_id": "ada"})
	require.Len(t, s.ok(http.StatusOK, "GET", "/v1/sessions/s/history", nil)["history"], 1)
}

// identities is an audit port that remembers what it was asked.
type identities struct {
	asked services.IdentityAsk
	page  services.IdentityPage
	err   error
}

func (i *identities) IdentityTurns(_ context.Context, ask services.IdentityAsk) (services.IdentityPage, error) {
	i.asked = ask
	return i.page, i.err
}

//conformance:h4 s25
func TestIdentityTurns(t *testing.T) {
	t.Parallel()
	port := &identities{page: services.IdentityPage{NextCursor: "next", Turns: []services.Turn{{
		Turn: session.Turn{ID: events.TurnID("s", "r"), RequestID: "r", Version: 1, CreatedAt: time.Unix(1,
			5), Question: &events.Question{QuestionNeutral: "q"}},
		SessionID: "s", IdentityID: "ada", Position: events.Position{Seq: 7},
	}}}}
	s := start(t, func(c *config) { c.Identities = port })
	got := s.ok(http.StatusOK, "GET",
		"/v1/identities/a%2Fda/turns?since=2026-01-02T03:04:05Z&until=2026-01-02T03:04:05.5%2B01:00"+
			"&limit=7&cursor=c&min_position=0:1", nil)
	require.Equal(t, "next", got["next_cursor"])
	turn := got["turns"].([]any)[0].(map[string]any)
	require.Equal(t, turnMembers, keys(turn))
	require.Equal(t, "0:7", turn["position"])
	require.Equal(t, "a/da", port.asked.IdentityID)
	require.Equal(t, 7, port.asked.Limit)
	require.Equal(t, "c", port.asked.Cursor)
	require.Equal(t, []events.Position{{Seq: 1}}, port.asked.MinPosition)
	require.Equal(t, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), port.asked.Since.UTC())
	require.Equal(t, time.Date(2026, 1, 2, 2, 4, 5, 5e8, time.UTC), port.asked.Until.UTC())

	port.err = errors.New("connection refused")
	requireProblem(t, s.do("GET", "/v1/identities/ada/turns", nil), http.StatusServiceUnavailable, "audit_unavailable")
	port.err = &decide.Invalid{Field: "cursor", Why: "is none"}
	requireProblem(t, s.do("GET", "/v1/identities/ada/turns", nil), http.StatusUnprocessableEntity, "invalid_argument",
		"cursor")
	port.err = services.ErrPositionNotReached
	requireProblem(t, s.do("GET", "/v1/identities/ada/turns", nil), http.StatusServiceUnavailable,
		"position_not_reached")
	port.err = fmt.Errorf("%w: the tables are at 0:1", services.ErrBehind)
	behind := s.do("GET", "/v1/identities/ada/turns", nil)
	requireProblem(t, behind, http.StatusServiceUnavailable, "audit_unavailable")
	require.Contains(t, behind.body["detail"], "have not applied yet what the log holds")
	requireProblem(t, start(t).do("GET", "/v1/identities/ada/turns", nil), http.StatusServiceUnavailable,
		"audit_unavailable")
}

// views is a fixed list of projections.
type views []projections.Status

func (v views) Projections(context.Context) ([]projections.Status, error) { return v, nil }

func TestProjections(t *testing.T) {
	t.Parallel()
	require.Equal(t, map[string]any{"projections": []any{}}, bare(t).ok(http.StatusOK, "GET", "/v1/projections", nil))
	s := bare(t, func(c *config) {
		c.Projections = views{{
			Rebuildable: true, Generation: 3,
			Name: "recent", Partition: 1, Position: events.Position{Partition: 1, Seq: 4},
			Head:      events.Position{Partition: 1, Seq: 6},
			LagEvents: 2, LagSeconds: .5, Rate: 1.5, State: "live",
		}, {Name: "audit", State: projections.Unknown, HeadUnknown: true, LastError: "the log is away"},
			{Name: "eraser", State: "failed", Position: events.Position{Seq: 9}, Head: events.Position{Seq: 7},
				LagUnknown: true}}
	})
	require.Equal(t, map[string]any{"projections": []any{map[string]any{
		"name": "recent", "partition": 1.0, "position": "1:4", "head": "1:6", "lag_events": 2.0, "lag_seconds": .5,
		"rate": 1.5, "state": "live", "generation": 3.0, "rebuildable": true, "last_error": nil,
	}, map[string]any{
		"name": "audit", "partition": 0.0, "position": "0:0", "head": nil, "lag_events": nil, "lag_seconds": nil,
		"rate": 0.0, "state": "unknown", "generation": 0.0, "rebuildable": false, "last_error": "the log is away",
	}, map[string]any{
		"name": "eraser", "partition": 0.0, "position": "0:9", "head": "0:7", "lag_events": nil, "lag_seconds": nil,
		"rate": 0.0, "state": "failed", "generation": 0.0, "rebuildable": false, "last_error": nil,
	}}}, s.ok(http.StatusOK, "GET", "/v1/projections", nil))
}

// A view keeps no tombstones; turns that it holds all of need no log.
//
//conformance:h61
func TestTurnsOfASessionWithATombstoneComeFromTheView(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	s := startOn(t, log, withMemoryView(t, log))
	gone := s.record("s", "r1", "q1", "a1")
	s.record("s", "r2", "q2", "a2")
	s.ok(http.StatusOK, "POST", "/v1/sessions/s/turns/"+gone+"/redact", nil)
	hang.Until(t, func() bool {
		page := s.ok(http.StatusOK, "GET", "/v1/sessions/s/turns", nil)
		require.Equal(t, []string{"q2"}, column(page["turns"], "question_neutral"))
		return strings.Contains(s.logs.String(), `"source":"view","turns":1`)
	})
	require.Len(t, s.ok(http.StatusOK, "GET", "/v1/sessions/s/turns?status=all", nil)["turns"], 2)
}

var contextMembers = []string{
	"dropped_turns", "history_messages", "history_turn_ids", "history_turns", "memory_snippet", "messages", "position", "rewrite_fallback",
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
		require.Subset(t, got, map[string]any{"history_messages": 4.0, "history_turns": 2.0, "dropped_turns": 10.0,
			"session_found": true, "position": "0:25", "warnings": []any{}})

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
	s := startOn(t, log, func(c *config) {
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
