package openai_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each item can be deleted, in each order: the others stay as they are, with their ids, and what comes later has ids of
// its own.
//
//conformance:o3 o19 o29
func TestItemsAreDeleted(t *testing.T) {
	t.Parallel()
	s := start(t)
	for seed := range uint64(12) {
		id := s.begin(user("q1"), `{"role":"user","content":"q2","id":"msg_client"}`)
		s.post(id, `{"type":"reasoning","summary":[]}`, function("c"))
		s.post(id, `{"type":"function_call_output","call_id":"c","output":"o"}`, assistant("a1"))
		s.post(id, user("q3"))
		s.do("POST", "/v1/sessions/"+id+"/turns", `{"request_id":"r","question_neutral":"n1","answer_messages":[
			{"role":"assistant","content":"n2","tool_calls":[{"id":"d","function":{"name":"f","arguments":"{}"}}]}]}`)
		left := s.list(id, 100)
		require.Len(t, left, 10)
		order := rand.New(rand.NewPCG(seed, 0)).Perm(len(left))
		if seed == 0 {
			slices.Sort(order)
		}
		gone := ids(left)
		for n, which := range order {
			path := "/v1/conversations/" + id + "/items/" + gone[which]
			require.Equal(t, id, s.must("DELETE", path, "")["id"])
			left = slices.DeleteFunc(left, func(i any) bool { return i.(map[string]any)["id"] == gone[which] })
			if n == 4 {
				left = append(left, s.post(id, assistant(fmt.Sprint("new ", seed)))...)
			}
			require.Equal(t, left, s.list(id, 100), "seed %d, after %d", seed, n)
			require.Equal(t, http.StatusNotFound, s.do("DELETE", path, "").status)
			require.Equal(t, http.StatusNotFound, s.do("GET", path, "").status)
		}
		require.Len(t, left, 1)
	}
}

// popItem of the Agents SDK: the newest item goes, and the conversation goes on where it was.
//
//conformance:o32
func TestTheNewestItemIsPopped(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.begin(user("q"), assistant("a"))
	pop := func() {
		newest := s.must("GET", "/v1/conversations/"+id+"/items?limit=1&order=desc", "")["data"].([]any)
		s.must("DELETE", "/v1/conversations/"+id+"/items/"+ids(newest)[0], "")
	}
	pop()
	s.post(id, assistant("better"))
	require.Equal(t, []string{"q", "better"}, texts(s.list(id, 100)))
	turns := s.turns(id)
	require.Len(t, turns, 1, "an answer without a message goes on")
	require.Equal(t, "better", turns[0]["answer_neutral"])
	pop()
	pop()
	require.Empty(t, s.list(id, 100))
	s.post(id, user("anew"))
	require.Equal(t, []string{"anew"}, texts(s.list(id, 100)))
}

// What comes after a deletion takes the id of nothing that was there.
//
//conformance:o29
func TestIDsAreNeverGivenTwice(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.begin(user("q1"), user("q2"), user("q3"))
	seen := ids(s.list(id, 100))
	next := func(item string) {
		all := ids(s.list(id, 100))
		s.must("DELETE", "/v1/conversations/"+id+"/items/"+all[0], "")
		added := ids(s.post(id, item))
		require.NotContains(t, seen, added[0])
		seen = append(seen, added...)
		require.Equal(t, append(all[1:], added...), ids(s.list(id, 100)))
	}
	next(user("q4"))
	next(user("q5"))
	next(assistant("a1"))
	for n := range 6 {
		next(assistant(fmt.Sprint("a", n+2)))
	}
}

// An item of a turn that a branch shares is deleted where it stands.
func TestASharedItemIsDeletedAtItsOrigin(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.begin(user("q"), assistant("a"))
	branch := s.do("POST", "/v1/sessions/"+id+"/fork", `{"request_id":"f"}`).body["session_id"].(string)
	path := "/items/" + ids(s.list(id, 100))[1]
	require.Equal(t, http.StatusConflict, s.do("DELETE", "/v1/conversations/"+branch+path, "").status)
	s.must("DELETE", "/v1/conversations/"+id+path, "")
	require.Equal(t, []string{"q"}, texts(s.list(branch, 100)))
}
