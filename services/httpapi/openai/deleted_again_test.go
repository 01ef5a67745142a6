package openai_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/answer"
)

const (
	idempotencyKey = "Idempotency-Key"
	receiptHeader  = "Turnledger-Receipt"
)

// deletions are ways to delete something, each of what it makes in a conversation: a path, and whether what goes is all
// of a turn.
var deletions = map[string]func(s *stack, id string) (path string){
	"an item": func(s *stack, id string) string {
		return "/v1/conversations/" + id + "/items/" + ids(s.list(id, 100))[1]
	},
	"the only item of a turn": func(s *stack, id string) string {
		return "/v1/conversations/" + id + "/items/" + ids(s.post(id, user("alone")))[0]
	},
	"a response": func(s *stack, id string) string {
		return "/v1/responses/" + s.must("POST", "/v1/responses", `{"input":"b","conversation":"`+id+`"}`)["id"].(string)
	},
	"a response that is a step of a turn": func(s *stack, id string) string {
		s.post(id, user("q"), function("c"))
		return "/v1/responses/" + s.must("POST", "/v1/responses", `{"input":[`+result("c", "o")+`],"conversation":"`+
			id+`"}`)["id"].(string)
	},
	"a conversation": func(_ *stack, id string) string { return "/v1/conversations/" + id },
}

// A deletion that comes again with its key is answered as the first time, in every process, before and after what was
// deleted has left the log. With another key, or none, there is nothing to delete.
//
//conformance:o36
func TestADeletionThatComesAgain(t *testing.T) {
	t.Parallel()
	for what, make := range deletions {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			log := natstest.Log(t, 1)
			s := startOn(t, log, answeredBy(answer.Echo{}))
			id := s.begin(user("q"), assistant("a"))
			path := make(s, id)
			first := s.do("DELETE", path, "", idempotencyKey, "k")
			require.Equal(t, http.StatusOK, first.status, first.raw)
			require.NotEmpty(t, first.header.Get(receiptHeader))
			again := func() {
				t.Helper()
				for _, p := range []*stack{s, startOn(t, log, answeredBy(answer.Echo{}))} {
					head := p.head()
					a := p.do("DELETE", path, "", idempotencyKey, "k")
					require.Equal(t, http.StatusOK, a.status, a.raw)
					require.Equal(t, first.body, a.body)
					require.Equal(t, first.header.Get(receiptHeader), a.header.Get(receiptHeader))
					require.Equal(t, http.StatusNotFound, p.do("DELETE", path, "", idempotencyKey, "k2").status)
					require.Equal(t, http.StatusNotFound, p.do("DELETE", path, "").status)
					require.Equal(t, head, p.head(), "a deletion that comes again writes nothing")
				}
			}
			again()
			s.erasePruned(id)
			again()
			if what != "a conversation" {
				s.post(id, user("more"))
				s.must("DELETE", "/v1/conversations/"+id+"/items/"+ids(s.list(id, 100))[0], "")
				s.erasePruned(id)
				again()
			}
		})
	}
}

// A client that repeats a deletion of which it has heard nothing says so, as it does with any other call.
//
//conformance:o38
func TestADeletionIsTriedAgain(t *testing.T) {
	t.Parallel()
	for what, make := range deletions {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := start(t, answeredBy(answer.Echo{}))
			path := make(s, s.begin(user("q"), assistant("a")))
			require.Equal(t, http.StatusNotFound, s.do("DELETE", nothing(path), "", retry, "1").status)
			first := s.must("DELETE", path, "", retry, "0")
			require.Equal(t, first, s.must("DELETE", path, "", retry, "1"))
			require.Equal(t, http.StatusNotFound, s.do("DELETE", path, "", retry, "0").status)
		})
	}
}

// Nobody else hears of a deletion, whatever key he sends.
func TestADeletionOfSomebodyElse(t *testing.T) {
	t.Parallel()
	callers := ring{"": {Name: "all", Scopes: all}, "all": {Name: "all", Scopes: all}}
	for _, name := range []string{"ada", "bob"} {
		callers[name] = access.Caller{Name: "one name", Scopes: all &^ access.Admin, IdentityID: name}
	}
	s := start(t, answeredBy(answer.Echo{}), func(s *stack) { s.wire.Open, s.wire.Auth = false, callers })
	own := s.hold("ada")
	for _, path := range []string{
		"/v1/conversations/" + own["conversation"] + "/items/" + own["item 0 message"],
		"/v1/responses/" + own["response of a conversation"], "/v1/conversations/" + own["conversation"],
	} {
		del := func(as string) reply {
			return s.do("DELETE", path, "", "Authorization", "Bearer "+as, idempotencyKey, "k")
		}
		first := del("ada")
		require.Equal(t, http.StatusOK, first.status, first.raw)
		require.Equal(t, first.body, del("ada").body)
		for _, other := range []string{"bob", "all"} {
			require.Equal(t, http.StatusNotFound, del(other).status, path)
		}
	}
}

// Metadata that comes again with its key changes nothing that another call has changed since.
//
//conformance:o36
func TestMetadataThatComesAgain(t *testing.T) {
	t.Parallel()
	s := start(t)
	path := "/v1/conversations/" + s.begin()
	s.must("POST", path, `{"metadata":{"k":"first"}}`, idempotencyKey, "k")
	s.must("POST", path, `{"metadata":{"k":"second"}}`)
	head := s.head()
	s.must("POST", path, `{"metadata":{"k":"first"}}`, idempotencyKey, "k")
	require.Equal(t, head, s.head())
	require.Equal(t, map[string]any{"k": "second"}, s.must("GET", path, "")["metadata"])
}
