package v1_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
)

// asked are the questions of a session's history.
func (s *stack) asked(session string) (out []any) {
	s.t.Helper()
	got := s.ok(http.StatusOK, "GET", "/v1/sessions/"+session+"/history?limit=1000", nil)
	for _, pair := range got["history"].([]any) {
		out = append(out, pair.(map[string]any)["question_neutral"])
	}
	return out
}

func eachLayout(t *testing.T, test func(t *testing.T, s *stack)) {
	t.Helper()
	for _, partitions := range []int{1, 8} {
		t.Run(fmt.Sprint(partitions, " partitions"), func(t *testing.T) {
			t.Parallel()
			log := natstest.Log(t, partitions)
			test(t, startOn(t, log, withMemoryView(t, log)))
		})
	}
}

//conformance:s26
func TestFork(t *testing.T) {
	t.Parallel()
	eachLayout(t, func(t *testing.T, s *stack) {
		t.Helper()
		const fork = "/v1/sessions/p/fork"
		one, two := s.record("p", "r1", "one", "1"), s.record("p", "r2", "two", "2")
		s.record("p", "r3", "three", "3")

		made := s.ok(http.StatusCreated, "POST", fork, map[string]any{"request_id": "f1", "turn_id": two})
		child := made["session_id"].(string)
		require.Equal(t, events.BranchID("p", "f1"), child)
		require.Equal(t, map[string]any{"session_id": "p", "turn_id": two}, made["forked_from"])
		again := s.ok(http.StatusOK, "POST", fork, map[string]any{"request_id": "f1", "session_id": "other"})
		require.Equal(t, child, again["session_id"], "whatever the later body says")
		require.Equal(t, true, again["duplicate"])

		s.record(child, "r1", "own", "o")
		got := s.ok(http.StatusOK, "GET", "/v1/sessions/"+child, nil)
		require.InDelta(t, 1, got["turns"], 0, "shared turns do not count")
		turns := s.ok(http.StatusOK, "GET", "/v1/sessions/"+child+"/turns", nil)["turns"].([]any)
		first := turns[0].(map[string]any)
		require.Equal(t, []any{"p", one, true}, []any{first["session_id"], first["turn_id"], first["inherited"]})
		require.Equal(t, false, turns[2].(map[string]any)["inherited"])

		for _, c := range []struct {
			write string
			body  any
		}{
			{"redact", nil}, {"finalize", map[string]any{"answer_neutral": "a"}},
			{"finalize", map[string]any{"answer_neutral": "a", "request_id": "r1"}},
			{"correct", map[string]any{"request_id": "x", "answer_neutral": "a"}},
		} {
			refused := s.do("POST", "/v1/sessions/"+child+"/turns/"+one+"/"+c.write, c.body)
			require.Equal(t, http.StatusConflict, refused.status, c.write)
			require.Equal(t, "turn_inherited", refused.body["code"])
			require.Equal(t, map[string]any{"session_id": "p", "turn_id": one}, refused.body["origin"])
		}

		grand := s.ok(http.StatusCreated, "POST", "/v1/sessions/"+child+"/fork", map[string]any{"request_id": "g"})
		id := grand["session_id"].(string)
		linked := s.ok(http.StatusOK, "PUT", "/v1/sessions/"+id+"/identity", map[string]any{"identity_id": "ada"})
		require.Equal(t, "ada", linked["identity_id"])
		for _, of := range []string{"p", child, id} {
			require.Equal(t, "ada", s.ok(http.StatusOK, "GET", "/v1/sessions/"+of, nil)["identity_id"])
		}
		refused := s.do("PUT", "/v1/sessions/"+child+"/identity", map[string]any{"identity_id": "bob"})
		require.Equal(t, "session_linked_elsewhere", refused.body["code"])
	})
}

// A branch that was linked has no identity any more once its root is erased, and goes with the identity all the same.
//
//conformance:h70
func TestALinkedBranchOfAnErasedRootHasNoIdentity(t *testing.T) {
	t.Parallel()
	eachLayout(t, func(t *testing.T, s *stack) {
		t.Helper()
		s.record("p", "r1", "one", "1")
		fork := s.ok(http.StatusCreated, "POST", "/v1/sessions/p/fork", map[string]any{"request_id": "f"})
		branch := "/v1/sessions/" + fork["session_id"].(string)
		s.record(fork["session_id"].(string), "r2", "two", "2")
		link := map[string]any{"identity_id": "ada"}
		s.ok(http.StatusOK, "PUT", branch+"/identity", link)
		require.Equal(t, true, s.ok(http.StatusOK, "PUT", branch+"/identity", link)["duplicate"])
		s.append(&events.SessionErased{SessionID: "p", ReceiptID: "x"})
		require.Nil(t, s.ok(http.StatusOK, "GET", branch, nil)["identity_id"])
		for path, method := range map[string]string{"/identity": "PUT", "/turns": "POST"} {
			body := map[string]any{"identity_id": "ada"}
			if method == "POST" {
				body["request_id"], body["question_neutral"] = "own", "q"
			}
			refused := s.do(method, branch+path, body)
			require.Equal(t, http.StatusConflict, refused.status, path)
			require.Equal(t, "session_linked_elsewhere", refused.body["code"], path)
			require.Contains(t, refused.body["detail"], "was erased: use a new session_id", path)
		}
		turn := s.ok(http.StatusCreated, "POST", branch+"/turns",
			map[string]any{"request_id": "own", "question_neutral": "q"})
		require.Nil(t, turn["identity_id"])
		require.Nil(t, s.ok(http.StatusOK, "POST", branch+"/reset", map[string]any{})["identity_id"])

		s.append(&events.IdentityErased{IdentityID: "ada", ReceiptID: "y"})
		require.Equal(t, false, s.ok(http.StatusOK, "GET", branch, nil)["found"])
	})
}

// A lineage has at most 32 segments.
func TestForksOfForks(t *testing.T) {
	t.Parallel()
	s := startOn(t, natstest.Log(t, 4))
	id := "s0"
	for i := range events.MaxSegments {
		s.record(id, "r", fmt.Sprint(i), "a")
		made := s.ok(http.StatusCreated, "POST", "/v1/sessions/"+id+"/fork", map[string]any{"request_id": "f"})
		id = made["session_id"].(string)
	}
	require.Len(t, s.asked(id), events.MaxSegments)
	s.record(id, "r", "last", "a")
	got := s.do("POST", "/v1/sessions/"+id+"/fork", map[string]any{"request_id": "f"})
	require.Equal(t, "fork_too_deep", got.body["code"])
}

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
		require.Subset(t, made, map[string]any{"from_turn_id": first, "through_turn_id": second, "turns": 2.0,
			"summary_neutral": "Counted to two.", "summary_translated": "Counted to two. (sv)", "model": "small"})
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
	s := start(t, func(c *config) { c.v1Config.Now = func() time.Time { return time.Now().Add(later) } })
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
