package v1_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

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
		s.record("p", "r4", "four", "4")
		require.Equal(t, []any{"one", "two", "own"}, s.asked(child))
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
		s.ok(http.StatusOK, "POST", "/v1/sessions/p/turns/"+one+"/redact", nil)
		s.ok(http.StatusOK, "POST", "/v1/sessions/p/turns/"+two+"/correct",
			map[string]any{"request_id": "c", "question_neutral": "better"})
		require.Equal(t, []any{"better", "own"}, s.asked(id))
		require.NotContains(t, string(s.do("POST", "/v1/sessions/"+id+"/context", map[string]any{"message": "m"}).raw),
			`"one"`)
		linked := s.ok(http.StatusOK, "PUT", "/v1/sessions/"+id+"/identity", map[string]any{"identity_id": "ada"})
		require.Equal(t, "ada", linked["identity_id"])
		for _, of := range []string{"p", child, id} {
			require.Equal(t, "ada", s.ok(http.StatusOK, "GET", "/v1/sessions/"+of, nil)["identity_id"])
		}
		refused := s.do("PUT", "/v1/sessions/"+child+"/identity", map[string]any{"identity_id": "bob"})
		require.Equal(t, "session_linked_elsewhere", refused.body["code"])
		s.append(&events.SessionErased{SessionID: "p", ReceiptID: "x"})
		require.Equal(t, []any{"own"}, s.asked(id), "what was shared is gone")
	})
}

// Root and branches have one identity, whichever call names it.
func TestATurnOnABranchLinksItsRoot(t *testing.T) {
	t.Parallel()
	eachLayout(t, func(t *testing.T, s *stack) {
		t.Helper()
		turn := map[string]any{
			"request_id": "own", "question_neutral": "q", "answer_neutral": "a", "identity_id": "ada",
		}
		for parent, write := range map[string]func(branch string){
			"single": func(branch string) {
				s.ok(http.StatusCreated, "POST", "/v1/sessions/"+branch+"/turns", turn)
			},
			"batch": func(branch string) {
				line := strings.Replace(manyLine(branch, "own"), "{", `{"identity_id":"ada",`, 1)
				require.InDelta(t, http.StatusCreated, s.many(line)[0]["http_status"], 0)
			},
		} {
			s.record(parent, "r1", "one", "1")
			fork := "/v1/sessions/" + parent + "/fork"
			id := s.ok(http.StatusCreated, "POST", fork, map[string]any{"request_id": "f"})["session_id"].(string)
			write(id)
			for _, of := range []string{parent, id} {
				require.Equal(t, "ada", s.ok(http.StatusOK, "GET", "/v1/sessions/"+of, nil)["identity_id"], parent)
			}
			require.Equal(t, []any{"one", "q"}, s.asked(id), parent)
		}
	})
}

// The root's erasure leaves a branch its own turns, but no identity to be had: nothing is written.
func TestABranchOfAnErasedRootIsNotLinked(t *testing.T) {
	t.Parallel()
	eachLayout(t, func(t *testing.T, s *stack) {
		t.Helper()
		s.record("p", "r1", "one", "1")
		fork := s.ok(http.StatusCreated, "POST", "/v1/sessions/p/fork", map[string]any{"request_id": "f"})
		branch := "/v1/sessions/" + fork["session_id"].(string)
		s.append(&events.SessionErased{SessionID: "p", ReceiptID: "x"})
		before := s.ok(http.StatusOK, "GET", branch, nil)
		turn := map[string]any{"request_id": "own", "question_neutral": "q", "identity_id": "ada"}
		for path, body := range map[string]map[string]any{"/identity": {"identity_id": "ada"}, "/turns": turn} {
			method := map[string]string{"/identity": "PUT", "/turns": "POST"}[path]
			refused := s.do(method, branch+path, body)
			require.Equal(t, http.StatusConflict, refused.status, path)
			require.Equal(t, "session_linked_elsewhere", refused.body["code"], path)
			require.Contains(t, refused.body["detail"], "was erased: use a new session_id", path)
		}
		require.Equal(t, before, s.ok(http.StatusOK, "GET", branch, nil))
		delete(turn, "identity_id")
		s.ok(http.StatusCreated, "POST", branch+"/turns", turn)

		// An erased identity closes whatever is linked to it, as elsewhere.
		s.append(&events.IdentityErased{IdentityID: "eve", ReceiptID: "y"})
		gone := s.do("PUT", branch+"/identity", map[string]any{"identity_id": "eve"})
		require.Equal(t, "session_erased", gone.body["code"])
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
		}
		turn := s.ok(http.StatusCreated, "POST", branch+"/turns",
			map[string]any{"request_id": "own", "question_neutral": "q"})
		require.Nil(t, turn["identity_id"])
		require.Nil(t, s.ok(http.StatusOK, "POST", branch+"/reset", map[string]any{})["identity_id"])

		s.append(&events.IdentityErased{IdentityID: "ada", ReceiptID: "y"})
		require.Equal(t, false, s.ok(http.StatusOK, "GET", branch, nil)["found"])
	})
}

func TestForksThatAreRefused(t *testing.T) {
	t.Parallel()
	eachLayout(t, func(t *testing.T, s *stack) {
		t.Helper()
		done := s.record("p", "r1", "one", "1")
		gone := s.record("p", "r2", "two", "2")
		s.ok(http.StatusOK, "POST", "/v1/sessions/p/turns/"+gone+"/redact", nil)
		pending := s.ok(http.StatusCreated, "POST", "/v1/sessions/p/turns",
			map[string]any{"request_id": "r3", "question_neutral": "three"})["turn_id"]
		s.record("taken", "r1", "q", "a")
		s.record("erased", "r1", "q", "a")
		s.append(&events.SessionErased{SessionID: "erased", ReceiptID: "x"})
		for name, c := range map[string]struct {
			session string
			body    map[string]any
			status  int
			code    string
		}{
			"both":             {"p", map[string]any{"turn_id": done, "before_turn_id": done}, 422, "invalid_argument"},
			"no request":       {"p", map[string]any{"request_id": nil}, 422, "invalid_argument"},
			"a taken id":       {"p", map[string]any{"session_id": "taken"}, 409, "session_exists"},
			"an erased id":     {"p", map[string]any{"session_id": "erased"}, 410, "session_erased"},
			"itself":           {"p", map[string]any{"session_id": "p"}, 409, "session_exists"},
			"a pending turn":   {"p", map[string]any{"turn_id": pending}, 409, "turn_pending"},
			"a redacted turn":  {"p", map[string]any{"turn_id": gone}, 409, "turn_redacted"},
			"before redacted":  {"p", map[string]any{"before_turn_id": gone}, 409, "turn_redacted"},
			"an unknown turn":  {"p", map[string]any{"turn_id": events.TurnID("p", "x")}, 404, "turn_not_found"},
			"no turn's id":     {"p", map[string]any{"turn_id": "nonsense"}, 404, "turn_not_found"},
			"an unknown one":   {"nobody", map[string]any{}, 404, "session_not_found"},
			"an erased parent": {"erased", map[string]any{}, 410, "session_erased"},
		} {
			if _, said := c.body["request_id"]; !said {
				c.body["request_id"] = name
			}
			got := s.do("POST", "/v1/sessions/"+c.session+"/fork", c.body)
			require.Equal(t, c.status, got.status, "%s: %s", name, got.raw)
			require.Equal(t, c.code, got.body["code"], name)
		}
		made := s.ok(http.StatusCreated, "POST", "/v1/sessions/p/fork",
			map[string]any{"request_id": "f", "before_turn_id": done})
		require.Equal(t, map[string]any{"session_id": "p", "turn_id": nil}, made["forked_from"], "nothing to share")
		require.Empty(t, s.asked(made["session_id"].(string)))
		last := s.ok(http.StatusCreated, "POST", "/v1/sessions/p/fork",
			map[string]any{"request_id": "g", "before_turn_id": pending})
		require.Equal(t, []any{"one"}, s.asked(last["session_id"].(string)))
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

// Each request makes one branch, however many clients ask at once.
func TestManyForksAtOnce(t *testing.T) {
	t.Parallel()
	s := startOn(t, natstest.Log(t, 4))
	s.record("p", "r1", "one", "1")
	var all sync.WaitGroup
	var mu sync.Mutex
	branches, created := map[string]map[string]bool{}, 0
	for i := range 64 {
		request := fmt.Sprint("f", i/4)
		all.Go(func() {
			s.do("POST", "/v1/sessions/p/turns", map[string]any{"request_id": fmt.Sprint("w", i),
				"question_neutral": "q", "answer_neutral": "a"})
			got := s.do("POST", "/v1/sessions/p/fork", map[string]any{"request_id": request,
				"session_id": fmt.Sprint("b", i)})
			mu.Lock()
			defer mu.Unlock()
			if branches[request] == nil {
				branches[request] = map[string]bool{}
			}
			branches[request][fmt.Sprint(got.body["session_id"])] = true
			if got.status == http.StatusCreated {
				created++
			}
		})
	}
	all.Wait()
	require.Len(t, branches, 16)
	for request, ids := range branches {
		require.Len(t, ids, 1, "%s: %v", request, ids)
		require.NotContains(t, ids, "<nil>")
		for id := range ids {
			require.Equal(t, "one", s.asked(id)[0])
		}
	}
	require.Equal(t, 16, created, "each is created once")
}
