package openai_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/services/answer"
)

// result is the output of a call.
func result(call, text string) string {
	return fmt.Sprintf(`{"type":"function_call_output","call_id":%q,"output":%q}`, call, text)
}

// saidIn returns the texts of items, in which calls and outputs have their call's id.
func saidIn(items []any) (out []string) {
	for n, line := range texts(items) {
		if call, is := items[n].(map[string]any)["call_id"].(string); is {
			line = strings.TrimPrefix(line, "function_") + " " + call
		}
		out = append(out, line)
	}
	return out
}

// twiceCalling is a model that answers each question with two calls at once, and each output with a text.
func twiceCalling(prompt []string) modeltest.Answer {
	role, text, _ := strings.Cut(prompt[len(prompt)-1], ": ")
	text, late := strings.CutPrefix(text, "[Tool result: ") // not right behind its call
	if text = strings.TrimSuffix(text, "]"); role == "user" && !late {
		return modeltest.Answer{Calls: []modeltest.Call{
			{ID: text + "-1", Name: "f", Arguments: "{}"}, {ID: text + "-2", Name: "f", Arguments: "{}"},
		}}
	}
	return modeltest.Answer{Text: "so " + text}
}

// The output of a call belongs to the turn that made the call, with the answer to it, also where a newer turn has made
// calls since; the model sees that turn as the last. Of outputs for several turns the model is asked about the newest.
//
//conformance:o33
func TestAnOutputOfAnOlderCall(t *testing.T) {
	t.Parallel()
	for _, streamed := range []bool{false, true} {
		for _, inConversation := range []bool{false, true} {
			t.Run(fmt.Sprintf("streamed %t, in a conversation %t", streamed, inConversation), func(t *testing.T) {
				t.Parallel()
				model, m := scripted(t, twiceCalling)
				s := start(t, answeredBy(m))
				last, session := "", ""
				if inConversation {
					session = s.begin()
				}
				ask := func(input string) map[string]any {
					body := `{"input":` + input + tool
					switch {
					case inConversation:
						body += `,"conversation":"` + session + `"`
					case last != "":
						body += `,"previous_response_id":"` + last + `"`
					}
					var r map[string]any
					if streamed {
						all := eventsOf(t, s.do("POST", "/v1/responses", body+`,"stream":true}`).raw)
						require.Equal(t, "response.completed", all[len(all)-1]["type"])
						r = all[len(all)-1]["response"].(map[string]any)
					} else {
						r = s.must("POST", "/v1/responses", body+`}`)
					}
					last = r["id"].(string)
					require.Equal(t, r, s.must("GET", "/v1/responses/"+last, ""))
					return r
				}
				ask(`"one"`)
				session = s.sessionOf(last)
				ask(`[` + result("one-1", "o1") + `]`)
				two := ask(`"two"`)
				for range 3 {
					<-model.Asked
				}
				older := ask(`[` + result("one-2", "o2") + `]`)
				require.Equal(t, []string{"so o2"}, texts(older["output"].([]any)))
				prompt := <-model.Asked
				require.Equal(t, "user: one", prompt[0])
				require.Contains(t, prompt[len(prompt)-1], "o2")
				require.NotContains(t, prompt, "user: two", "it is not about that")
				want := []string{"one", "call one-1", "call one-2", "call_output one-1", "so o1", "call_output one-2",
					"so o2", "two", "call two-1", "call two-2"}
				require.Equal(t, want, saidIn(s.list(session, 3)))
				require.Equal(t, want[:6], saidIn(s.given(last)))

				both := ask(`[` + result("two-1", "t1") + `,` + result("one-1", "again") + `]`)
				require.Equal(t, []string{"so t1"}, texts(both["output"].([]any)))
				want = append(append(append(append([]string{}, want[:7]...), "call_output one-1"), want[7:]...),
					"call_output two-1", "so t1")
				require.Equal(t, want, saidIn(s.list(session, 100)))
				turns := s.turns(session)
				require.Len(t, turns, 2)
				require.Equal(t, []any{"so o2", "so t1"}, []any{turns[0]["answer_neutral"], turns[1]["answer_neutral"]})

				// A branch has the history of its response, the newer turn too.
				s.must("POST", "/v1/responses", `{"input":"three","previous_response_id":"`+older["id"].(string)+`"}`)
				branched := s.must("POST", "/v1/responses", `{"input":"four","previous_response_id":"`+
					older["id"].(string)+`"}`)
				given := saidIn(s.given(branched["id"]))
				require.Subset(t, given, []string{"one", "so o2", "two", "call two-2", "four"})
				require.NotContains(t, given, "three")
				require.NotContains(t, given, "so t1")

				// A response in the middle of a turn goes alone.
				s.must("DELETE", "/v1/responses/"+older["id"].(string), "")
				left := saidIn(s.list(session, 100))
				require.NotContains(t, left, "so o2")
				require.NotContains(t, left, "call_output one-2")
				require.Contains(t, left, "so o1")
				require.Equal(t, http.StatusOK, s.do("GET", "/v1/responses/"+two["id"].(string), "").status)
			})
		}
	}
}

// shortViews are readings that hold the newest turns only.
type shortViews struct{ answer.States }

func (v shortViews) Session(ctx context.Context, id string, known uint64) (*session.State, error) {
	state, err := v.States.Session(ctx, id, known)
	if err == nil {
		recent.Limits{MaxTurns: 3}.WithDefaults().Trim(state)
	}
	return state, err
}

// A call is found however many turns are behind it, and its answer is made, though no view holds its turn any more. An
// output of no call goes to the newest turn.
//
//conformance:o33
func TestAnOutputOfAVeryOldCall(t *testing.T) {
	t.Parallel()
	_, m := scripted(t, twiceCalling)
	s := start(t, answeredAs(m, func(c *answer.Config) { c.States = shortViews{c.States} }))
	id := s.begin(user("first"), function("c"), function("d"))
	for n := range 30 {
		s.post(id, user(fmt.Sprint("q", n)), assistant(fmt.Sprint("a", n)))
	}
	s.post(id, result("c", "by items"))
	s.must("POST", "/v1/responses", `{"conversation":"`+id+`","input":[`+result("d", "by a response")+`]}`)
	s.post(id, result("none", "of no call"))
	all := saidIn(s.list(id, 100))
	require.Equal(t, []string{"first", "call c", "call d", "call_output c", "call_output d", "so by a response", "q0"},
		all[:7])
	require.Equal(t, []string{"q29", "a29", "call_output none"}, all[len(all)-3:])

	// The call may stand in the same call of the API, before a newer question.
	s.post(id, user("p"), function("e"), user("q"), result("e", "at once"))
	all = saidIn(s.list(id, 100))
	require.Equal(t, []string{"p", "call e", "call_output e", "q"}, all[len(all)-4:])
}

// What a response was asked with does not change by what older turns get later; what is deleted leaves it.
func TestTheInputOfAResponseStaysWhatItWas(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	id := s.begin(user("q0"), function("c"))
	r := s.must("POST", "/v1/responses",
		`{"input":[`+assistant("note")+`,`+user("q1")+`],"conversation":"`+id+`"}`)["id"]
	had := s.given(r)
	require.Equal(t, []string{"q0", "call c", "note", "q1"}, saidIn(had))
	s.must("POST", "/v1/responses", `{"conversation":"`+id+`","input":[`+result("c", "late")+`]}`)
	s.post(id, user("q2"), assistant("a2"))
	require.Equal(t, had, s.given(r))
	later := startOn(t, s.log, answeredBy(answer.Echo{}))
	require.Equal(t, had, later.given(r), "after a restart")
	for n := range had {
		s.must("DELETE", "/v1/conversations/"+id+"/items/"+had[0].(map[string]any)["id"].(string), "")
		if n == 1 {
			s.erasePruned(id)
		}
		if had = had[1:]; n < 3 {
			require.Equal(t, had, s.given(r))
		}
	}
}

// A list goes on behind an answer that extended its turn by the event that began the turn's answer: its id holds the
// place of a message that had none yet.
func TestAListGoesOnBehindAnAnswerToAnOutput(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string][]string{
		"another message":           {assistant("more")},
		"a message and a new turn":  {assistant("more"), user("next"), assistant("then")},
		"many messages of the turn": {assistant("more"), assistant("even more"), assistant("last"), user("next")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, answeredBy(answer.Echo{}))
			id := s.begin(`{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`, user("question"))
			s.must("POST", "/v1/responses", `{"conversation":"`+id+`","input":[`+result("c", "o")+`]}`)
			s.post(id, lines...)
			all := ids(s.list(id, 100))
			require.Len(t, all, 4+len(lines))
			for size := 1; size <= len(all); size++ {
				require.Equal(t, all, ids(s.list(id, size)), size)
				back := s.listBack(id, size)
				slices.Reverse(back)
				require.Equal(t, all, back, size)
			}
		})
	}
}
