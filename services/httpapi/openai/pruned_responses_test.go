package openai_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services/answer"
)

// lacking returns a response whose output lacks an item.
func lacking(r map[string]any, gone string) map[string]any {
	out := maps.Clone(r)
	left := []any{}
	for _, i := range r["output"].([]any) {
		if i.(map[string]any)["id"] != gone {
			left = append(left, i)
		}
	}
	out["output"] = left
	return out
}

// erasePruned takes the events before the last prune, or the redaction, of each turn of a session from the log, as the
// eraser does.
func (s *stack) erasePruned(sessionID string) {
	s.t.Helper()
	pruned, redacted := map[uuid.UUID]uint64{}, map[uuid.UUID]bool{}
	var all []events.Recorded
	for e, err := range s.log.Session(s.t.Context(), sessionID, 0, ^uint64(0)) {
		require.NoError(s.t, err)
		if f, is := e.Fact.(*events.TurnPruned); is {
			pruned[f.TurnID] = e.Position.Seq
		}
		if f, is := e.Fact.(*events.TurnRedacted); is {
			pruned[f.TurnID], redacted[f.TurnID] = e.Position.Seq, true
		}
		all = append(all, e)
	}
	require.NoError(s.t, s.notePruned(events.SessionDigest(sessionID), sessionID))
	for _, e := range all {
		if turn, _ := session.Named(e); e.Position.Seq < pruned[turn] {
			if !redacted[turn] || len(events.TextsOf(e.Fact).Settings) > 0 {
				require.NoError(s.t, s.notePruned(turn.String(), sessionID))
			}
			_, err := overwrite.On(s.log).Erase(s.t.Context(), e.Position)
			require.NoError(s.t, err)
		}
	}
}

// A response stays when items of its turn are deleted: it says what it said, without them, whichever go and in which
// order, and before and after their events have left the log.
func TestResponsesOfAPrunedTurn(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	for seed := range 4 {
		id := s.begin()
		on := tool + `,"metadata":{"k":"v"},"instructions":"be kind","conversation":"` + id + `"`
		responses := []map[string]any{s.must("POST", "/v1/responses", `{"input":"a"`+on+`}`)}
		call := responses[0]["output"].([]any)[0].(map[string]any)["call_id"].(string)
		output := `{"type":"function_call_output","call_id":"` + call + `","output":"o"}`
		responses = append(responses, s.must("POST", "/v1/responses", `{"input":[`+output+`]`+on+`}`))
		s.post(id, assistant("a note"))
		given := [][]any{s.given(responses[0]["id"]), s.given(responses[1]["id"])}
		all := ids(s.list(id, 100))
		require.Len(t, all, 5)
		for n := range all[:4] {
			gone := all[(n*(2*seed+1)+seed)%4] // another order in each round
			s.must("DELETE", "/v1/conversations/"+id+"/items/"+gone, "")
			if seed%2 == 1 {
				s.erasePruned(id)
			}
			for k := range responses {
				responses[k] = lacking(responses[k], gone)
				path := "/v1/responses/" + responses[k]["id"].(string)
				require.Equal(t, responses[k], s.must("GET", path, ""), "seed %d, after %d", seed, n)
				left := []any{}
				for _, i := range given[k] {
					if i.(map[string]any)["id"] != gone {
						left = append(left, i)
					}
				}
				given[k] = left
				require.Equal(t, left, s.given(responses[k]["id"]), "seed %d, after %d", seed, n)
			}
		}
		require.Equal(t, []string{"a note"}, texts(s.list(id, 100)))
		later := startOn(t, s.log, answeredBy(answer.Echo{}))
		for k := range responses {
			path := "/v1/responses/" + responses[k]["id"].(string)
			require.Equal(t, responses[k], later.must("GET", path, ""), "after a restart")
		}
	}
}

// A conversation goes on from a response of which items are gone, as it goes on from any other.
//
//conformance:o67
func TestAPrunedResponseIsContinued(t *testing.T) {
	t.Parallel()
	model, m := scripted(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "secret"} })
	s := start(t, answeredBy(m))
	root := s.must("POST", "/v1/responses", `{"input":"a"}`)
	next := s.must("POST", "/v1/responses", `{"input":"b","previous_response_id":"`+root["id"].(string)+`"}`)
	session := s.sessionOf(root["id"].(string))
	for _, r := range []map[string]any{root, next} {
		s.must("DELETE", "/v1/conversations/"+session+"/items/"+ids(r["output"].([]any))[0], "")
	}
	for range 2 {
		<-model.Asked
	}
	s.erasePruned(session)
	for n := range 2 {
		last := s.must("POST", "/v1/responses", `{"input":"c","previous_response_id":"`+next["id"].(string)+`"}`)
		require.Equal(t, []string{"user: a", "user: b", "user: c"}, <-model.Asked)
		require.Equal(t, n == 0, session == s.sessionOf(last["id"].(string)), "the first goes on, the second branches")
		branch := s.must("POST", "/v1/responses", `{"input":"d","previous_response_id":"`+root["id"].(string)+`"}`)
		require.Equal(t, []string{"user: a", "user: d"}, <-model.Asked)
		require.NotEqual(t, session, s.sessionOf(branch["id"].(string)))
	}
}

// A branch behind a response of which an item was deleted has nothing that came after the response, in no turn.
func TestABranchBehindAPrunedResponseHasNothingLater(t *testing.T) {
	t.Parallel()
	result := func(call, of string) string {
		return `{"type":"function_call_output","call_id":"` + call + `","output":"` + of + `"}`
	}
	for name, c := range map[string]struct {
		begins        []string
		asks, answers string // of the response, and what came later
	}{
		"an older turn goes on": {[]string{user("q0"), function("c")}, user("q1"), result("c", "later")},
		"its own turn goes on":  {[]string{user("q0"), function("c")}, user("q1"), assistant("later")},
		"the turn of a question that stood before": {
			[]string{user("q0"), function("c"), user("waits")}, result("c", "o"), assistant("later")},
	} {
		for _, erased := range []bool{false, true} {
			s := start(t, answeredBy(answer.Echo{}))
			id := s.begin(c.begins...)
			r := s.must("POST", "/v1/responses", `{"input":[`+c.asks+`],"conversation":"`+id+`"}`)
			next := func(s *stack, words string) []string {
				on := s.must("POST", "/v1/responses",
					`{"input":"`+words+`","previous_response_id":"`+r["id"].(string)+`"}`)
				return saidIn(s.given(on["id"]))
			}
			had := next(s, "before")
			s.post(id, c.answers)
			require.Equal(t, had, next(s, "before"), name)
			s.must("DELETE", "/v1/conversations/"+id+"/items/"+ids(r["output"].([]any))[0], "")
			if erased {
				s.erasePruned(id)
			}
			var left []string
			for _, line := range had[:len(had)-1] {
				if !strings.Contains(line, "You said") {
					left = append(left, line)
				}
			}
			require.Equal(t, append(left, "after"), next(s, "after"), "%s, erased: %v", name, erased)
			later := startOn(t, s.log, answeredBy(answer.Echo{}))
			require.Equal(t, append(left, "after"), next(later, "after"), "%s, erased: %v, restarted", name, erased)
		}
	}
}

// A response that is deleted is gone also where its turn was pruned before, with all that it was asked for; the other
// responses of the turn stay.
func TestADeletedResponseOfAPrunedTurnIsGone(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	id := s.begin()
	on := tool + `,"conversation":"` + id + `"`
	first := s.must("POST", "/v1/responses", `{"input":"a"`+on+`}`)
	call := first["output"].([]any)[0].(map[string]any)["call_id"].(string)
	second := s.must("POST", "/v1/responses", `{"input":[{"type":"function_call_output","call_id":"`+call+
		`","output":"o"},{"role":"assistant","content":"x"}],"instructions":"the secret"`+on+`}`)
	s.must("DELETE", "/v1/conversations/"+id+"/items/"+ids(s.list(id, 10))[3], "")
	path := "/v1/responses/" + second["id"].(string)
	s.erasePruned(id)
	require.Equal(t, "the secret", s.must("GET", path, "")["instructions"])
	s.must("DELETE", path, "")
	s.erasePruned(id)
	require.Equal(t, http.StatusNotFound, s.do("GET", path, "").status)
	require.Equal(t, http.StatusNotFound, s.do("DELETE", path, "").status)
	require.Equal(t, first, s.must("GET", "/v1/responses/"+first["id"].(string), ""))
	require.Equal(t, []string{"a", "function_call"}, texts(s.list(id, 10)))
	var left strings.Builder
	for e, err := range s.log.Session(t.Context(), id, 0, ^uint64(0)) {
		require.NoError(t, err)
		if e.Type == "turnledger.turn.pruned.v1" {
			left.Reset()
			fmt.Fprint(&left, string(e.Body))
		}
	}
	require.NotContains(t, left.String(), "the secret")
	require.Contains(t, left.String(), "brought")
}

// What a response was asked with goes with it, also what stands in a turn of which the events have left the log since.
func TestADeletedResponseLeavesNothingInAnotherTurn(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{false, true} { // whether the events of its own turn have left the log, too
		s := start(t, answeredBy(answer.Echo{}))
		id := s.begin(user("before"))
		on := `],"conversation":"` + id + `"}`
		first := s.must("POST", "/v1/responses", `{"input":[`+user("q1")+on)
		second := s.must("POST", "/v1/responses", `{"input":[`+assistant("secret")+`,`+user("q2")+on)
		s.must("DELETE", "/v1/responses/"+first["id"].(string), "")
		if own {
			s.must("DELETE", "/v1/conversations/"+id+"/items/"+ids(second["output"].([]any))[0], "")
		}
		s.erasePruned(id)
		require.Equal(t, []string{"before", "secret", "q2"}, texts(s.list(id, 100))[:3])
		later := startOn(t, s.log, answeredBy(answer.Echo{}))
		later.must("DELETE", "/v1/responses/"+second["id"].(string), "")
		require.Equal(t, []string{"before"}, texts(later.list(id, 100)), "its own: %v", own)
	}
}

// The first thing that a response was asked with may be the answer to a question that waited for one. It goes with the
// response also where the events that brought either, or both, have left the log.
func TestADeletedResponseTakesTheAnswerThatItGaveBefore(t *testing.T) {
	t.Parallel()
	for _, both := range []bool{false, true} {
		s := start(t, answeredBy(answer.Echo{}))
		id := s.begin(user("before"), user("asked"))
		r := s.must("POST", "/v1/responses",
			`{"input":[`+assistant("secret")+`,`+user("q")+`],"conversation":"`+id+`"}`)
		s.must("DELETE", "/v1/conversations/"+id+"/items/"+ids(r["output"].([]any))[0], "")
		left := []string{"before", "asked"}
		if both {
			s.must("DELETE", "/v1/conversations/"+id+"/items/"+ids(s.list(id, 100))[0], "")
			left = left[1:]
		}
		s.erasePruned(id)
		later := startOn(t, s.log, answeredBy(answer.Echo{}))
		require.Equal(t, append(slices.Clone(left), "secret", "q"), texts(later.list(id, 100)))
		later.must("DELETE", "/v1/responses/"+r["id"].(string), "")
		require.Equal(t, left, texts(later.list(id, 100)), "both: %v", both)
	}
}
