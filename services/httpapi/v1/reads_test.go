package v1_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/history"
	"github.com/turnledger/turnledger/services/read"
)

var sessionMembers = []string{"created_at", "forked_from", "found", "identity_id", "last_active_at", "metadata",
	"pending", "position",
	"session_id", "title", "turns"}

// written are the members of an answer to a write on a session.
func written() []string { return slices.Insert(slices.Clone(sessionMembers), 1, "duplicate") }

func TestSession(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, s *stack) {
		unknown := s.ok(http.StatusOK, "GET", "/v1/sessions/nobody", nil)
		require.Equal(t, map[string]any{
			"session_id": "nobody", "identity_id": nil, "found": false, "turns": 0.0, "pending": 0.0,
			"created_at": nil, "last_active_at": nil, "position": "0:0", "title": nil, "metadata": map[string]any{},
			"forked_from": nil,
		}, unknown)
		require.Zero(t, s.head())

		linked := s.ok(http.StatusOK, "PUT", "/v1/sessions/s/identity", map[string]any{"identity_id": "ada"})
		require.Equal(t, written(), keys(linked))
		require.Equal(t, "ada", linked["identity_id"])
		require.Equal(t, true, linked["found"])
		require.Equal(t, "0:1", linked["position"])
		again := s.ok(http.StatusOK, "PUT", "/v1/sessions/s/identity", map[string]any{"identity_id": "ada"})
		require.Equal(t, linked["position"], again["position"])

		s.record("s", "r1", "q1", "a1")
		s.record("s", "r2", "q2", "")
		got := s.ok(http.StatusOK, "GET", "/v1/sessions/s", nil)
		require.Equal(t, sessionMembers, keys(got))
		require.EqualValues(t, 2, got["turns"])
		require.EqualValues(t, 1, got["pending"])
		require.Equal(t, "0:4", got["position"])
		require.NotNil(t, got["last_active_at"])
	})
}

//conformance:i8 i40 f12
func TestResetHidesAndDeletesNothing(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, s *stack) {
		s.record("s", "r1", "q1", "a1")
		reset := s.ok(http.StatusOK, "POST", "/v1/sessions/s/reset", map[string]any{"reason": "new topic"})
		require.Equal(t, written(), keys(reset))
		require.Equal(t, "0:3", reset["position"])
		require.Equal(t, "0:3", s.ok(http.StatusOK, "POST", "/v1/sessions/s/reset", nil)["position"])
		s.record("s", "r2", "q2", "a2")
		require.Equal(t, []string{"q2"}, column(s.ok(http.StatusOK, "GET", "/v1/sessions/s/history", nil)["history"],
			"question_neutral"))
		require.Equal(t, []string{"q1", "q2"}, column(s.ok(http.StatusOK, "GET", "/v1/sessions/s/turns", nil)["turns"],
			"question_neutral"))
		require.EqualValues(t, 2, s.ok(http.StatusOK, "GET", "/v1/sessions/s", nil)["turns"])
	})
}

func TestAnErasedSessionIsNotFoundAndIsEmpty(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, s *stack) {
		s.record("s", "r1", "q1", "a1")
		s.append(&events.SessionErased{SessionID: "s", ReceiptID: "receipt"})
		got := s.ok(http.StatusOK, "GET", "/v1/sessions/s", nil)
		require.Equal(t, false, got["found"])
		require.EqualValues(t, 0, got["turns"])
		require.Empty(t, s.ok(http.StatusOK, "GET", "/v1/sessions/s/turns?status=all", nil)["turns"])
		require.Empty(t, s.ok(http.StatusOK, "GET", "/v1/sessions/s/history", nil)["history"])
		a := s.do("POST", "/v1/sessions/s/turns", map[string]any{"request_id": "r2", "question_neutral": "q"})
		requireProblem(t, a, http.StatusGone, "session_erased")
	})
}

//conformance:h38
func TestTurnsArePagedFromTheNewestBack(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, s *stack) {
		for i := range 25 {
			s.record("s", fmt.Sprint(i), fmt.Sprint("q", i), fmt.Sprint("a", i))
			if i%5 == 0 {
				s.record("s", fmt.Sprint("p", i), fmt.Sprint("pending", i), "")
			}
		}
		first := s.ok(http.StatusOK, "GET", "/v1/sessions/s/turns", nil)
		require.Equal(t, []string{"next_cursor", "turns"}, keys(first))
		require.Equal(t, numbered("q", 5, 25), column(first["turns"], "question_neutral"))
		second := s.ok(http.StatusOK, "GET", "/v1/sessions/s/turns?cursor="+first["next_cursor"].(string), nil)
		require.Equal(t, numbered("q", 0, 5), column(second["turns"], "question_neutral"))
		require.Nil(t, second["next_cursor"])
		require.Equal(t, []string{"pending0", "pending5", "pending10", "pending15", "pending20"},
			column(s.ok(http.StatusOK, "GET", "/v1/sessions/s/turns?status=pending", nil)["turns"], "question_neutral"))

		var all []string
		for query := "?status=all&limit=7"; ; {
			page := s.ok(http.StatusOK, "GET", "/v1/sessions/s/turns"+query, nil)
			all = append(column(page["turns"], "question_neutral"), all...)
			if page["next_cursor"] == nil {
				break
			}
			query = "?status=all&limit=7&cursor=" + page["next_cursor"].(string)
		}
		require.Len(t, all, 30)
		require.Equal(t, []string{"q0", "pending0", "q1"}, all[:3])
		require.Equal(t, []string{"pending20", "q21", "q22", "q23", "q24"}, all[25:])
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
	s := start(t, func(c *config, _ *history.Config, _ *read.Config) {
		c.v1Config.Now = later
	})
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
		Turn: conversation.Turn{ID: events.TurnID("s", "r"), RequestID: "r", Version: 1, CreatedAt: time.Unix(1,
			5), Question: &events.Question{QuestionNeutral: "q"}},
		SessionID: "s", IdentityID: "ada", Position: events.Position{Seq: 7},
	}}}}
	s := start(t, func(c *config, _ *history.Config, _ *read.Config) { c.Identities = port })
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
	port.err = &conversation.Invalid{Field: "cursor", Why: "is none"}
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
	require.Equal(t, map[string]any{"projections": []any{}}, start(t).ok(http.StatusOK, "GET", "/v1/projections", nil))
	s := start(t, func(c *config, _ *history.Config, _ *read.Config) {
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

// The cap of a view bounds memory, not the truth.
//
//conformance:h24 h26 f11
func TestTurnsBeyondTheCapOfTheView(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	s := startOn(t, log, withCappedView(t, log, 5))
	for i := range 12 {
		s.record("s", fmt.Sprint(i), fmt.Sprint("q", i), fmt.Sprint("a", i))
	}
	require.Equal(t, numbered("q", 0, 12), column(s.ok(http.StatusOK, "GET", "/v1/sessions/s/turns", nil)["turns"],
		"question_neutral"))
	require.Equal(t, numbered("q", 9, 12), column(s.ok(http.StatusOK, "GET", "/v1/sessions/s/turns?limit=3",
		nil)["turns"], "question_neutral"))
	require.Equal(t, numbered("q", 2, 12), column(s.ok(http.StatusOK, "GET", "/v1/sessions/s/history?limit=10",
		nil)["history"], "question_neutral"))
	require.EqualValues(t, 12, s.ok(http.StatusOK, "GET", "/v1/sessions/s", nil)["turns"])
	page := s.ok(http.StatusOK, "GET", "/v1/sessions/s/turns?limit=4", nil)
	page = s.ok(http.StatusOK, "GET", "/v1/sessions/s/turns?limit=4&cursor="+page["next_cursor"].(string), nil)
	require.Equal(t, numbered("q", 4, 8), column(page["turns"], "question_neutral"))
	s.ok(http.StatusOK, "POST", "/v1/sessions/s/reset", nil)
	require.Equal(t, numbered("q", 0, 12), column(s.ok(http.StatusOK, "GET", "/v1/sessions/s/turns", nil)["turns"],
		"question_neutral"))
}
