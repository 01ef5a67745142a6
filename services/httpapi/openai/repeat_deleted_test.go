package openai_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/services/answer"
)

// deletedAndRepeated are calls, and what stands before and comes after their items.
func deletedAndRepeated() map[string]struct{ before, items, after []string } {
	said := []string{user("q1"), assistant("a1"), user("q2"), user("q3"), assistant("a2"), assistant("a3")}
	output := `{"type":"function_call_output","call_id":"c","output":"o"}`
	return map[string]struct{ before, items, after []string }{
		"whole turns":              {items: said},
		"a question":               {items: said[2:4]},
		"an answer":                {before: said[:1], items: said[4:]},
		"an extended answer":       {before: said[:2], items: said[4:]},
		"an extended question":     {before: said[:1], items: said[2:]},
		"turns that went on":       {items: said, after: []string{assistant("more"), user("and more")}},
		"an answer that went on":   {before: said[:2], items: said[4:], after: []string{assistant("more")}},
		"outputs of an older turn": {before: []string{user("q"), function("c")}, items: []string{output, said[4]}},
	}
}

// A call that comes again is answered as the first time, without the items that were deleted since, wherever the call
// put them: in every process, before and after their events have left the log. If all are deleted, the list is empty.
//
//conformance:o37
func TestARepeatedCallGivesNothingDeletedBack(t *testing.T) {
	t.Parallel()
	const key = "Idempotency-Key"
	another := `{"items":[` + user("another") + `]}`
	for name, c := range deletedAndRepeated() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := natstest.Log(t, 1)
			s, other := startOn(t, log), startOn(t, log)
			for n := range 2 * len(c.items) {
				id := s.begin(c.before...)
				path := "/v1/conversations/" + id + "/items"
				left := s.must("POST", path, `{"items":[`+strings.Join(c.items, ",")+`]}`, key, "k")["data"].([]any)
				require.Equal(t, left, other.must("POST", path, another, key, "k")["data"])
				if len(c.after) > 0 {
					s.post(id, c.after...)
				}
				for len(left) > 0 { // in another order in each round
					i := n / 2 % len(left)
					s.must("DELETE", path+"/"+ids(left)[i], "")
					left = slices.Delete(slices.Clone(left), i, i+1)
					if n%2 == 1 {
						s.erasePruned(id)
					}
					for _, p := range []*stack{s, other, startOn(t, log)} {
						require.Equal(t, left, p.must("POST", path, another, key, "k")["data"], "round %d", n)
					}
				}
			}
		})
	}
}

// A response is given again, without what was deleted of it, also when its input is gone: before and after the events
// have left the log.
//
//conformance:o37
func TestARepeatedResponseGivesNothingDeletedBack(t *testing.T) {
	t.Parallel()
	const key = "Idempotency-Key"
	log := natstest.Log(t, 1)
	s, other := startOn(t, log, answeredBy(answer.Echo{})), startOn(t, log, answeredBy(answer.Echo{}))
	for n := range 4 {
		id := s.begin(user("q"), assistant("a"))
		body := `{"input":"LEAKME","conversation":"` + id + `"}`
		first := s.must("POST", "/v1/responses", body, key, "k")
		require.Equal(t, first, other.must("POST", "/v1/responses", body, key, "k"))
		gone := ids(s.list(id, 10))[2:] // the input and the output
		if n%2 == 1 {
			slices.Reverse(gone)
		}
		s.must("DELETE", "/v1/conversations/"+id+"/items/"+gone[0], "")
		if n >= 2 {
			s.erasePruned(id)
		}
		left := lacking(first, gone[0])
		for _, p := range []*stack{s, other, startOn(t, log, answeredBy(answer.Echo{}))} {
			require.Equal(t, left, p.must("POST", "/v1/responses", body, key, "k"), "round %d", n)
		}
		s.must("DELETE", "/v1/conversations/"+id+"/items/"+gone[1], "")
		if n >= 2 {
			s.erasePruned(id)
		}
		for _, p := range []*stack{other, startOn(t, log, answeredBy(answer.Echo{}))} {
			a := p.do("POST", "/v1/responses", body, key, "k")
			require.Equal(t, s.do("GET", "/v1/responses/"+first["id"].(string), "").status, a.status, a.raw)
			require.NotContains(t, a.raw, "LEAKME")
		}
		require.Equal(t, []string{"q", "a"}, texts(other.list(id, 10)))
	}
}

// A call whose turn was redacted, or whose response was deleted, is not made anew, in any process.
func TestARepeatedCallOfARedactedTurnIsNotMadeAnew(t *testing.T) {
	t.Parallel()
	const key = "Idempotency-Key"
	log := natstest.Log(t, 1)
	s := startOn(t, log, answeredBy(answer.Echo{}))
	id := s.begin()
	path := "/v1/conversations/" + id + "/items"
	s.must("POST", path, `{"items":[`+user("LEAKME")+`]}`, key, "k")
	s.must("POST", path, `{"items":[`+assistant("LEAKME")+`]}`, key, "k2")
	s.must("POST", path, `{"items":[`+assistant("LEAKME")+`]}`, key, "k3")
	s.must("POST", "/v1/sessions/"+id+"/turns/"+s.turns(id)[0]["turn_id"].(string)+"/redact", `{}`)
	body := `{"input":"LEAKME","conversation":"` + id + `"}`
	s.must("DELETE", "/v1/responses/"+s.must("POST", "/v1/responses", body, key, "k")["id"].(string), "")
	for range 2 {
		for _, p := range []*stack{s, startOn(t, log, answeredBy(answer.Echo{}))} {
			for _, k := range []string{"k", "k2", "k3"} {
				require.Empty(t, p.must("POST", path, `{"items":[`+user("another")+`]}`, key, k)["data"])
			}
			require.Equal(t, http.StatusNotFound, p.do("POST", "/v1/responses", body, key, "k").status)
			require.Empty(t, p.list(id, 10))
		}
		s.erasePruned(id)
	}
}

// A conversation that is begun again by the same key gives no item back, and lists what is left.
//
//conformance:o37
func TestARepeatedBeginningGivesNothingDeletedBack(t *testing.T) {
	t.Parallel()
	const key = "Idempotency-Key"
	log := natstest.Log(t, 1)
	s, other := startOn(t, log), startOn(t, log)
	body := `{"items":[` + user("LEAKME") + `,` + assistant("two") + `]}`
	made := s.must("POST", "/v1/conversations", body, key, "k")
	id := made["id"].(string)
	s.must("DELETE", "/v1/conversations/"+id+"/items/"+ids(s.list(id, 10))[0], "")
	for range 2 {
		for _, p := range []*stack{s, other, startOn(t, log)} {
			require.Equal(t, made, p.must("POST", "/v1/conversations", body, key, "k"))
			require.Equal(t, []string{"two"}, texts(p.list(id, 10)))
		}
		s.erasePruned(id)
	}
}

// A call or a response whose turn was corrected natively gives none of the replaced texts back, and is not made anew.
func TestARepeatedCallOfACorrectedTurnGivesNothingReplacedBack(t *testing.T) {
	t.Parallel()
	const key = "Idempotency-Key"
	log := natstest.Log(t, 1)
	s := startOn(t, log, answeredBy(answer.Echo{}))
	id := s.begin()
	path := "/v1/conversations/" + id + "/items"
	body := `{"items":[` + user("LEAKME") + `,` + assistant("LEAKME") + `]}`
	s.must("POST", path, body, key, "k")
	asks := `{"input":"LEAKME","conversation":"` + id + `"}`
	response := s.must("POST", "/v1/responses", asks, key, "k")["id"].(string)
	for i, turn := range s.turns(id) {
		s.must("POST", "/v1/sessions/"+id+"/turns/"+turn["turn_id"].(string)+"/correct",
			fmt.Sprintf(`{"request_id":"c%d","question_neutral":"asked","answer_neutral":"said %d"}`, i, i))
	}
	want := []string{"asked", "said 0", "asked", "said 1"}
	for range 2 {
		for _, p := range []*stack{s, startOn(t, log, answeredBy(answer.Echo{}))} {
			listed := p.list(id, 10)
			require.Equal(t, want, texts(listed))
			a := p.do("POST", path, body, key, "k")
			require.Equal(t, http.StatusOK, a.status, a.raw)
			require.Empty(t, a.body["data"])
			require.Equal(t, http.StatusNotFound, p.do("POST", "/v1/responses", asks, key, "k").status)
			require.Equal(t, http.StatusNotFound, p.do("GET", "/v1/responses/"+response, "").status)
			require.Equal(t, listed, p.list(id, 10))
		}
		s.erasePruned(id)
	}
}

// A response is given again though what its request names is deleted since: the response that it goes on with, or an
// item that it refers to. Another request of the same words is refused.
//
//conformance:o37
func TestAResponseIsGivenAgainOnceWhatItNamesIsDeleted(t *testing.T) {
	t.Parallel()
	const key = "Idempotency-Key"
	log := natstest.Log(t, 4)
	s, other := startOn(t, log, answeredBy(answer.Echo{})), startOn(t, log, answeredBy(answer.Echo{}))
	asked := func(body string) (session, path string) {
		path = "/v1/responses/" + s.must("POST", "/v1/responses", body)["id"].(string)
		return s.sessionOf(path[len("/v1/responses/"):]), path
	}
	referring := func(id, where string) string {
		return `{"input":[{"type":"item_reference","id":"` + id + `"},` + user("and?") + `]` + where + `}`
	}
	behind := func(path string) string {
		return `{"input":"and?","previous_response_id":"` + path[len("/v1/responses/"):] + `"}`
	}
	for name, prepare := range map[string]func() (session, named, body string){
		"behind a response": func() (string, string, string) {
			session, path := asked(`{"input":"root"}`)
			return session, path, behind(path)
		},
		"in a branch": func() (string, string, string) {
			session, path := asked(`{"input":"root"}`)
			s.must("POST", "/v1/responses", behind(path))
			return session, path, behind(path)
		},
		"an item of the conversation": func() (string, string, string) {
			id := s.begin(user("q"), assistant("a"))
			item := ids(s.list(id, 10))[0]
			return id, "/v1/conversations/" + id + "/items/" + item, referring(item, `,"conversation":"`+id+`"`)
		},
		"an item before a response": func() (string, string, string) {
			session, path := asked(`{"input":"root"}`)
			item := ids(s.list(session, 10))[0]
			return session, "/v1/conversations/" + session + "/items/" + item,
				referring(item, `,"previous_response_id":"`+path[len("/v1/responses/"):]+`"`)
		},
		"an item of another conversation": func() (string, string, string) {
			id := s.begin(user("q"), assistant("a"))
			item := ids(s.list(id, 10))[0]
			return id, "/v1/conversations/" + id + "/items/" + item, referring(item, "")
		},
	} {
		session, named, body := prepare()
		first := s.must("POST", "/v1/responses", body, key, name)
		s.must("DELETE", named, "")
		for _, state := range []string{"deleted", "gone from the log"} {
			for _, p := range []*stack{s, other, startOn(t, log, answeredBy(answer.Echo{}))} {
				require.Equal(t, first, p.do("POST", "/v1/responses", body, key, name).body, "%s, %s", name, state)
			}
			s.erasePruned(session)
		}
		require.GreaterOrEqual(t, s.do("POST", "/v1/responses", body).status, 400, name)
		require.GreaterOrEqual(t, s.do("POST", "/v1/responses", body, key, name+"2").status, 400, name)
	}
}
