package openai_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/answer"
)

// branches returns the sessions that the log has as branches of a session.
func (s *stack) branches(of string) (out []string) {
	s.t.Helper()
	for e, err := range s.log.Session(s.t.Context(), of, 0, ^uint64(0)) {
		require.NoError(s.t, err)
		if f, is := e.Fact.(*events.SessionBranched); is {
			out = append(out, f.ChildSessionID)
		}
	}
	return out
}

// A call that comes again makes no other branch; the same call twice makes two. A branch that was deleted stays so, and
// the same call makes another one.
//
//conformance:o69
func TestACallThatComesAgainMakesNoBranch(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	id := s.begin()
	root := s.must("POST", "/v1/responses", `{"input":"root","conversation":"`+id+`"}`)["id"].(string)
	body := `{"input":"a","previous_response_id":"` + root + `"}`
	for n := range 3 {
		first := s.must("POST", "/v1/responses", body, retry, "0")
		for range 2 {
			require.Equal(t, first, s.must("POST", "/v1/responses", body, retry, "1"))
		}
		require.Len(t, s.branches(id), n+1)
		require.Equal(t, s.branches(id)[n], s.sessionOf(first["id"].(string)))
		if n == 1 {
			s.must("DELETE", "/v1/conversations/"+s.branches(id)[n], "")
		}
	}
	for _, branch := range s.branches(id)[1:2] {
		require.Equal(t, http.StatusNotFound, s.do("GET", "/v1/conversations/"+branch, "").status)
	}
	keyed := s.must("POST", "/v1/responses", body, "Idempotency-Key", "k")
	require.Equal(t, keyed, s.must("POST", "/v1/responses", body, "Idempotency-Key", "k"))
	require.Len(t, s.branches(id), 4)
}

// brokenOff is a history that breaks off before it adds messages to a branch.
type brokenOff struct {
	services.MessageWriter

	breaks bool
}

var errBrokenOff = errors.New("killed")

func (b *brokenOff) AddMessages(
	ctx context.Context, c decide.AddMessages, call services.Call,
) (services.AddedMessages, error) {
	if c.Begins && b.breaks {
		b.breaks = false
		return services.AddedMessages{}, errBrokenOff
	}
	return b.MessageWriter.AddMessages(ctx, c, call)
}

// A branch that a crash left without its input is taken by the next try, and by the next call of the same words.
//
//conformance:o69
func TestABranchThatACrashLeftIsTaken(t *testing.T) {
	t.Parallel()
	for _, try := range []string{"0", "1"} {
		turns := &brokenOff{}
		s := start(t, answeredAs(answer.Echo{}, func(r *answer.Config) {
			turns.MessageWriter, r.Messages = r.Messages, turns
		}))
		id := s.begin()
		root := s.must("POST", "/v1/responses", `{"input":"root","conversation":"`+id+`"}`)["id"].(string)
		body := `{"input":"a","previous_response_id":"` + root + `"}`
		turns.breaks = true
		require.Equal(t, http.StatusInternalServerError, s.do("POST", "/v1/responses", body).status)
		r := s.must("POST", "/v1/responses", body, retry, try)
		require.Equal(t, s.branches(id), []string{s.sessionOf(r["id"].(string))})
		require.Equal(t, []string{"root", "a"}, []string{saidIn(s.given(r["id"]))[0], saidIn(s.given(r["id"]))[2]})
	}
}

// A branch has the whole input of the response that it goes on with, however long that is.
func TestABranchHasALongInputWhole(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	doc := strings.Repeat("a document of many words ", 8<<10)
	many := []string{user(doc + "1"), user(doc + "2"), user(doc + "3"), user(doc + "4")}
	for n := range 70 {
		many = append(many, user(fmt.Sprint("question ", n)))
	}
	id := s.begin()
	for _, of := range []string{"", `"conversation":"` + id + `",`} {
		first := s.must("POST", "/v1/responses", `{`+of+`"input":[`+strings.Join(many, ",")+`]}`)
		require.Contains(t, fmt.Sprint(first["output"]), "(73 messages before)")
		for _, words := range []string{"goes on", "branches", "branches, too"} {
			next := s.must("POST", "/v1/responses",
				`{"input":"`+words+`","previous_response_id":"`+first["id"].(string)+`"}`)
			require.Contains(t, fmt.Sprint(next["output"]), words+" (75 messages before)")
			given := s.must("GET", "/v1/responses/"+next["id"].(string)+"/input_items?order=asc&limit=100", "")
			require.Len(t, given["data"], 76)
		}
	}
}

// A response from before a reset of its conversation is still read, but it is no history any more.
func TestNothingGoesOnWithAResponseFromBeforeAReset(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	for _, session := range []string{s.begin(), ""} {
		ask := `{"input":"a"}`
		if session != "" {
			ask = `{"input":"a","conversation":"` + session + `"}`
		}
		before := s.must("POST", "/v1/responses", ask)["id"].(string)
		session = s.sessionOf(before)
		s.must("POST", "/v1/sessions/"+session+"/reset", `{}`)
		for range 2 {
			for _, more := range []string{"", `,"store":false`, `,"stream":true`} {
				a := s.do("POST", "/v1/responses", `{"input":"b","previous_response_id":"`+before+`"`+more+`}`)
				require.Equal(t, http.StatusBadRequest, a.status, "%s: %s", more, a.raw)
				require.Equal(t, "previous_response_not_found", a.body["error"].(map[string]any)["code"], more)
			}
			require.Equal(t, http.StatusOK, s.do("GET", "/v1/responses/"+before, "").status)
			s.post(session, user("after"), assistant("yes"))
		}
	}
}

// A response whose turn was corrected natively is gone, as its answer is; the responses behind it stay, and go on from
// what stands in its place.
func TestResponsesBehindOneThatWasCorrectedNativelyStay(t *testing.T) {
	t.Parallel()
	model, m := scripted(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "wrong"} })
	s := start(t, answeredBy(m))
	root := s.must("POST", "/v1/responses", `{"input":"a"}`)["id"].(string)
	next := s.must("POST", "/v1/responses", `{"input":"b","previous_response_id":"`+root+`"}`)["id"].(string)
	session := s.sessionOf(root)
	first := s.turns(session)[0]["turn_id"].(string)
	s.must("POST", "/v1/sessions/"+session+"/turns/"+first+"/correct", `{"request_id":"c","answer_neutral":"right"}`)
	for range 2 {
		<-model.Asked
	}
	on := func(id string) reply {
		return s.do("POST", "/v1/responses", `{"input":"c","previous_response_id":"`+id+`"}`)
	}
	require.Equal(t, http.StatusNotFound, s.do("GET", "/v1/responses/"+root, "").status)
	require.Equal(t, http.StatusBadRequest, on(root).status)
	require.Equal(t, http.StatusOK, on(next).status)
	require.Equal(t, []string{"user: a", "assistant: right", "user: b", "assistant: wrong", "user: c"}, <-model.Asked)
	require.Equal(t, http.StatusOK, s.do("GET", "/v1/responses/"+next, "").status)
}
