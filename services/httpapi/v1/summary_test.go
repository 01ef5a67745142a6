package v1_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services/history"
	"github.com/turnledger/turnledger/services/read"
)

//conformance:h69
func TestSummaries(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, s *stack) {
		t.Helper()
		const path = "/v1/sessions/s"
		first := s.record("s", "r1", "one", "un")
		second := s.record("s", "r2", "two", "deux")
		third := s.record("s", "r3", "three", "trois")
		open := s.record("s", "r4", "four", "")
		sum := func(request, through, text string) map[string]any {
			return map[string]any{"request_id": request, "through_turn_id": through, "summary_neutral": text,
				"summary_translated": text + " (sv)", "model": "small"}
		}
		made := s.ok(http.StatusCreated, http.MethodPost, path+"/summaries", sum("m1", second, "Counted to two."))
		require.Equal(t, first, made["from_turn_id"])
		require.Equal(t, second, made["through_turn_id"])
		require.InDelta(t, 2, made["turns"], 0)
		require.Equal(t, "Counted to two.", made["summary_neutral"])
		require.Equal(t, "Counted to two. (sv)", made["summary_translated"])
		require.Equal(t, "small", made["model"])
		require.NotEmpty(t, made["created_at"])
		require.NotEmpty(t, made["position"])
		again := s.ok(http.StatusOK, http.MethodPost, path+"/summaries", sum("m1", first, "SECRET"))
		require.Equal(t, true, again["duplicate"])
		again["duplicate"] = false
		require.Equal(t, made, again, "the first summary stands")

		for name, refused := range map[string]struct {
			body   map[string]any
			status int
			code   string
		}{
			"pending":    {sum("m2", open, "SECRET"), http.StatusConflict, "turn_pending"},
			"unknown":    {sum("m2", made["summary_id"].(string), "SECRET"), http.StatusNotFound, "turn_not_found"},
			"no turn":    {sum("m2", "SECRET", "SECRET"), http.StatusUnprocessableEntity, "invalid_argument"},
			"no text":    {sum("m2", first, ""), http.StatusUnprocessableEntity, "invalid_argument"},
			"no request": {sum("", first, "SECRET"), http.StatusUnprocessableEntity, "invalid_argument"},
		} {
			got := s.do(http.MethodPost, path+"/summaries", refused.body)
			require.Equal(t, refused.status, got.status, name)
			require.Contains(t, string(got.raw), refused.code, name)
			require.NotContains(t, string(got.raw), "SECRET", name)
		}

		ask := func(more map[string]any) map[string]any {
			body := map[string]any{"message": "next", "summary": true, "max_messages": 2}
			for k, v := range more {
				body[k] = v
			}
			return s.ok(http.StatusOK, http.MethodPost, path+"/context", body)
		}
		const head = "Summary of the conversation so far:\n"
		shown := ask(nil)
		require.Equal(t, map[string]any{"role": "system", "content": head + "Counted to two."},
			shown["messages"].([]any)[0])
		require.Len(t, shown["messages"], 4)
		require.Equal(t, map[string]any{"summary_id": made["summary_id"], "through_turn_id": second, "turns": 2.0},
			shown["summary"])
		require.Equal(t, head+"Counted to two. (sv)",
			ask(map[string]any{"language": "translated"})["messages"].([]any)[0].(map[string]any)["content"])
		for name, without := range map[string]map[string]any{
			"not asked for":              {"summary": false},
			"no turn is left out":        {"max_messages": 20},
			"a covered turn is shown":    {"max_messages": 4},
			"no token is left":           {"max_tokens": 12},
			"it did not stand then":      {"as_of": map[string]any{"position": "0:6"}},
			"the history is the request": {"conversation_history": []any{}},
		} {
			got := ask(without)
			require.Nil(t, got["summary"], name)
			require.NotContains(t, got["messages"].([]any)[0].(map[string]any)["content"], head, name)
		}
		require.NotNil(t, ask(map[string]any{"max_tokens": 60})["summary"])
		require.NotNil(t, ask(map[string]any{"as_of": map[string]any{"position": made["position"]}})["summary"])
		require.Contains(t, ask(map[string]any{"format": "anthropic"})["system"], head)

		list := func(session string) []any {
			got := s.ok(http.StatusOK, http.MethodGet, "/v1/sessions/"+session+"/summaries", nil)
			return got["summaries"].([]any)
		}
		shorter := s.ok(http.StatusCreated, http.MethodPost, path+"/summaries", sum("m0", first, "Counted to one."))
		delete(made, "duplicate")
		delete(shorter, "duplicate")
		require.Equal(t, []any{made, shorter}, list("s"), "newest last")
		require.Empty(t, list("unknown"))

		s.ok(http.StatusOK, http.MethodPost, path+"/turns/"+second+"/redact", nil)
		require.Equal(t, []any{shorter}, list("s"), "one that ends before stays")
		s.ok(http.StatusOK, http.MethodPost, path+"/turns/"+first+"/redact", nil)
		require.Empty(t, list("s"))
		require.Nil(t, ask(nil)["summary"], "a covered turn was redacted")
		require.Nil(t, ask(map[string]any{"as_of": map[string]any{"position": made["position"]}})["summary"],
			"one that stands no longer")
		require.Equal(t, http.StatusConflict, s.do(http.MethodPost, path+"/summaries", sum("m1", second, "x")).status)
		require.Equal(t, http.StatusCreated, s.do(http.MethodPost, path+"/summaries", sum("m3", third, "y")).status)
	})
}

// An anonymous session that was silent for too long has ended: its summaries are not listed, as its turns are not.
func TestSummariesOfAnEndedSession(t *testing.T) {
	t.Parallel()
	later := time.Duration(0)
	s := start(t, func(c *config, _ *history.Config, _ *read.Config) {
		c.v1Config.Now = func() time.Time { return time.Now().Add(later) }
	})
	turn := s.record("s", "r1", "one", "un")
	s.ok(http.StatusCreated, http.MethodPost, "/v1/sessions/s/summaries",
		map[string]any{"request_id": "m", "through_turn_id": turn, "summary_neutral": "One."})
	list := func() any { return s.ok(http.StatusOK, http.MethodGet, "/v1/sessions/s/summaries", nil)["summaries"] }
	later = rules.SessionTTL - time.Minute
	require.Len(t, list(), 1)
	later = rules.SessionTTL + time.Minute
	require.Empty(t, list())
	require.Empty(t, s.asked("s"))
}

// A summary of a branch covers what the branch shares, also where it ends with such a turn. It is not shown from the
// moment when the parent changes: neither now nor as of then.
func TestSummariesOfBranches(t *testing.T) {
	t.Parallel()
	for _, voids := range []string{"redact", "correct", "erase"} {
		eachBackend(t, func(t *testing.T, s *stack) {
			t.Helper()
			first := s.record("p", "r1", "one", "un")
			second := s.record("p", "r2", "two", "deux")
			s.ok(http.StatusCreated, "POST", "/v1/sessions/p/fork",
				map[string]any{"request_id": "f", "session_id": "b"})
			own := s.record("b", "r3", "three", "trois")
			s.ok(http.StatusCreated, "POST", "/v1/sessions/b/fork",
				map[string]any{"request_id": "f", "session_id": "c"})
			s.record("p", "later", "not shared", "no")
			for _, id := range []string{"b", "c"} {
				s.record(id, "r4", "four", "quatre")
			}
			sum := func(session, request, through string) map[string]any {
				return s.ok(http.StatusCreated, http.MethodPost, "/v1/sessions/"+session+"/summaries", map[string]any{
					"request_id": request, "through_turn_id": through, "summary_neutral": "SECRET " + request})
			}
			made := map[string]map[string]any{"b": sum("b", "all", own), "c": sum("c", "all", own)}
			short := sum("b", "short", first)
			require.Equal(t, first, made["b"]["from_turn_id"])
			require.Equal(t, own, made["b"]["through_turn_id"])
			require.InDelta(t, 3, made["b"]["turns"], 0)
			require.InDelta(t, 1, short["turns"], 0)
			list := func(session string) (requests []string) {
				got := s.ok(http.StatusOK, http.MethodGet, "/v1/sessions/"+session+"/summaries", nil)
				for _, m := range got["summaries"].([]any) {
					requests = append(requests, m.(map[string]any)["summary_neutral"].(string))
				}
				return requests
			}
			shown := func(session string, then bool) any {
				body := map[string]any{"message": "next", "summary": true, "max_messages": 2}
				if then {
					body["as_of"] = map[string]any{"position": made[session]["position"]}
				}
				return s.ok(http.StatusOK, http.MethodPost, "/v1/sessions/"+session+"/context", body)["summary"]
			}
			require.Equal(t, []string{"SECRET all", "SECRET short"}, list("b"))
			require.Equal(t, []string{"SECRET all"}, list("c"))
			for _, then := range []bool{false, true} {
				require.Equal(t, made["c"]["summary_id"], shown("c", then).(map[string]any)["summary_id"])
			}

			var stays []string
			switch voids {
			case "redact":
				s.ok(http.StatusOK, http.MethodPost, "/v1/sessions/p/turns/"+second+"/redact", nil)
				stays = []string{"SECRET short"}
			case "correct":
				s.ok(http.StatusOK, http.MethodPost, "/v1/sessions/p/turns/"+second+"/correct",
					map[string]any{"request_id": "c", "question_neutral": "2", "answer_neutral": "II"})
				stays = []string{"SECRET short"}
			case "erase":
				natstest.Append(t, s.log, &events.SessionErased{SessionID: "p", ReceiptID: uuid.NewString()})
			}
			require.Equal(t, stays, list("b"), "one that ends before stays")
			require.Empty(t, list("c"))
			for _, then := range []bool{false, true} {
				require.Nil(t, shown("c", then))
			}
			if voids != "erase" {
				again := s.do(http.MethodPost, "/v1/sessions/b/summaries", map[string]any{
					"request_id": "all", "through_turn_id": own, "summary_neutral": "SECRET"})
				require.Equal(t, http.StatusConflict, again.status, "its text may repeat what was taken away")
			}
			sum("b", "anew", own)
			require.Equal(t, append(stays, "SECRET anew"), list("b"))
		})
	}
}
