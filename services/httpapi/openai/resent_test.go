package openai_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
)

// sentAgain returns what clients send again of the answer that made calls, beside their outputs.
func sentAgain(t *testing.T, output []any) map[string][]string {
	t.Helper()
	var whole, bare, named []string
	for _, i := range output {
		item := i.(map[string]any)
		raw, err := json.Marshal(item)
		require.NoError(t, err)
		whole = append(whole, string(raw))
		named = append(named, fmt.Sprintf(`{"type":"item_reference","id":%q}`, item["id"]))
		delete(item, "id")
		raw, err = json.Marshal(item)
		require.NoError(t, err)
		bare = append(bare, string(raw))
	}
	return map[string][]string{
		"nothing": nil, "whole": whole, "without ids": bare, "references": named, "the calls": whole[1:],
		"with the question": slices.Concat([]string{user("a")}, named), "one call": named[2:],
	}
}

// Calls that a client sends again with their outputs stand once, with what the model thought before them: in the list,
// for the model, and in a branch, also behind a newer turn.
func TestCallsThatComeAgainWithTheirOutputsStandOnce(t *testing.T) {
	t.Parallel()
	thinking := func(prompt []string) modeltest.Answer {
		a := twiceCalling(prompt)
		if len(a.Calls) > 0 {
			a.Thoughts = "hm"
		}
		return a
	}
	for _, inConversation := range []bool{false, true} {
		for _, newer := range []bool{false, true} {
			t.Run(fmt.Sprintf("in a conversation %t, a newer turn %t", inConversation, newer), func(t *testing.T) {
				t.Parallel()
				for _, name := range []string{
					"nothing", "whole", "without ids", "references", "the calls", "with the question", "one call",
				} {
					model, m := scripted(t, thinking)
					s := start(t, answeredBy(m))
					session := s.begin()
					ask := func(input []string, behind any, more ...string) map[string]any {
						on := fmt.Sprintf(`,"previous_response_id":%q`, behind)
						if behind == nil {
							on = ""
						}
						if inConversation {
							on = fmt.Sprintf(`,"conversation":%q`, session)
						}
						return s.respondTo(input, slices.Concat([]string{tool, on}, more)...)
					}
					first := ask([]string{user("a")}, nil)
					again := sentAgain(t, first["output"].([]any))[name]
					had := []string{"a", "reasoning", "call a-1", "call a-2"}
					behind := first["id"]
					<-model.Asked
					if newer {
						behind = ask([]string{user("b")}, behind)["id"]
						<-model.Asked
						if name == "with the question" {
							again = again[1:] // the question of the newest turn alone is left out
						}
					}
					input := append(again, result("a-1", "x"), result("a-2", "y"))
					want := []string{"user: a", "assistant: null", "tool: x", "tool: y"}

					ask(input, behind, `,"store":false`)
					prompt := <-model.Asked
					if !newer {
						require.Equal(t, want, prompt, "%s: not stored", name)
					}
					second := ask(input, behind)
					prompt = <-model.Asked
					require.Equal(t, want, prompt[len(prompt)-len(want):], "%s: %s", name, prompt)
					had = append(had, "call_output a-1", "call_output a-2")
					require.Equal(t, had, saidIn(s.given(second["id"]))[:len(had)], name)
					if inConversation {
						require.Equal(t, had, saidIn(s.list(session, 100))[:len(had)], name)
						continue
					}
					other := ask(input, behind)
					if prompt = <-model.Asked; !newer {
						require.Equal(t, want, prompt, "%s: in a branch", name)
						require.Equal(t, had, saidIn(s.given(other["id"])), "%s: in a branch", name)
					}
				}
			})
		}
	}
}

// Vercel's AI SDK sends with each step of a run the user's message and all outputs of the run. Each stands once.
func TestOutputsThatComeAgainWithTheNextStandOnce(t *testing.T) {
	t.Parallel()
	for _, ids := range [][]string{{"c1", "c2", "c3"}, {"c", "c", "c"}} { // some models use an id again
		step := 0
		model, m := scripted(t, func([]string) modeltest.Answer {
			if step == len(ids) {
				return modeltest.Answer{Text: "done"}
			}
			step++
			return modeltest.Answer{Calls: []modeltest.Call{{ID: ids[step-1], Name: "f", Arguments: "{}"}}}
		})
		s := start(t, answeredBy(m))
		id := s.begin()
		input, want := []string{user("a")}, []string{"a"}
		prompt := []string{"user: a"}
		for n := range len(ids) + 1 {
			s.respondTo(input, tool, `,"conversation":"`+id+`"`)
			require.Equal(t, prompt, <-model.Asked, "step %d", n)
			if n < len(ids) {
				input = append(input, result(ids[n], "same"))
				want = append(want, "call "+ids[n], "call_output "+ids[n])
				prompt = append(prompt, "assistant: null", "tool: same")
			}
		}
		require.Equal(t, append(want, "done"), saidIn(s.list(id, 100)))
	}
}

// What a turn has already with its output is left out where the input begins with it, and something follows.
func TestATailOfTheHistoryThatComesAgain(t *testing.T) {
	t.Parallel()
	model, m := scripted(t, twiceCalling)
	had := []string{"user: q", "assistant: null", "tool: x", "assistant: so x"}
	copied := []string{"assistant: null", "tool: x"}
	for _, c := range []struct{ input, prompt []string }{
		{[]string{function("c"), result("c", "x"), user("b")}, []string{"user: b"}},
		{[]string{function("c"), result("c", "x"), assistant("so x"), user("b")}, []string{"user: b"}},
		{[]string{user("q"), function("c"), result("c", "x"), assistant("so x"), user("b")}, []string{"user: b"}},
		{[]string{user("q"), result("c", "x"), user("b")}, []string{"user: b"}},
		{[]string{strings.Replace(user("q"), "user", "developer", 1), result("c", "x"), user("b")},
			[]string{"developer: q", "user: b"}},
		{[]string{user("q"), result("c", "x")}, []string{"user: [Tool result: x]"}},
		{[]string{assistant("so x"), user("b"), function("d"), result("d", "x")},
			append([]string{"assistant: so x", "user: b"}, copied...)},
		{[]string{user("b"), function("c"), result("c", "x")}, append([]string{"user: b"}, copied...)},
		{[]string{function("c"), result("c", "y"), user("b")}, []string{"assistant: null", "tool: y", "user: b"}},
		{[]string{function("c"), result("c", "x")}, copied},
		{[]string{function("c"), function("d"), result("d", "x")},
			[]string{"assistant: [Tool call: f {}]", "tool: x"}},
	} {
		s := start(t, answeredBy(m))
		id := s.begin(user("q"), function("c"), result("c", "x"), assistant("so x"))
		s.respondTo(c.input, tool, fmt.Sprintf(`,"conversation":%q`, id))
		require.Equal(t, append(slices.Clone(had), c.prompt...), <-model.Asked, "%s", c.input)
	}
}

// An application that gives the AI SDK all its messages sends the questions and outputs of earlier turns, too.
func TestQuestionsAndOutputsOfEarlierTurnsThatComeAgain(t *testing.T) {
	t.Parallel()
	model, m := scripted(t, twiceCalling)
	for _, c := range []struct{ input, want []string }{
		{[]string{user("q"), result("c", "x"), user("r"), result("d", "y")}, nil},
		{[]string{result("c", "x"), result("d", "y")}, nil},
		{[]string{user("q"), result("c", "x"), user("r"), result("d", "y"), user("s")}, []string{"user: s"}},
		{[]string{user("q"), user("r"), result("d", "y")}, []string{"user: q", "user: r"}}, // q is new
		{[]string{user("q"), function("c"), result("c", "x"), assistant("so x"), user("r"), function("d"),
			result("d", "y"), user("s")}, []string{"user: s"}},
	} {
		for _, of := range []string{"d", "c"} { // the model may use an id again
			s := start(t, answeredBy(m))
			id := s.begin(user("q"), function("c"), result("c", "x"), assistant("so x"), user("r"), function(of))
			for n, i := range c.input {
				c.input[n] = strings.Replace(i, `"call_id":"d"`, `"call_id":"`+of+`"`, 1)
			}
			s.respondTo(c.input, tool, fmt.Sprintf(`,"conversation":%q`, id))
			require.Equal(t, append([]string{"user: q", "assistant: null", "tool: x", "assistant: so x", "user: r",
				"assistant: null", "tool: y"}, c.want...), <-model.Asked, "%s", c.input)
		}
	}
}

// In a branch that begins at a call, the turn with the call is the other session's, and its output the branch's own.
func TestOutputsComeAgainInABranch(t *testing.T) {
	t.Parallel()
	model, m := scripted(t, func(prompt []string) modeltest.Answer {
		id := fmt.Sprint("c", len(prompt))
		return modeltest.Answer{Calls: []modeltest.Call{{ID: id, Name: "f", Arguments: "{}"}}}
	})
	s := start(t, answeredBy(m))
	on := func(r map[string]any) string { return fmt.Sprintf(`,"previous_response_id":%q`, r["id"]) }
	first := s.respondTo([]string{user("q")}, tool)
	s.respondTo([]string{user("q"), result("c1", "x")}, tool, on(first))
	branch := s.respondTo([]string{user("q"), result("c1", "y")}, tool, on(first))
	for range 3 {
		<-model.Asked
	}
	last := s.respondTo([]string{user("q"), result("c1", "y"), result("c3", "z")}, tool, on(branch))
	require.Equal(t, []string{"user: q", "assistant: null", "tool: y", "assistant: null", "tool: z"}, <-model.Asked)
	require.Equal(t, []string{"q", "call c1", "call_output c1", "call c3", "call_output c3"},
		saidIn(s.given(last["id"])))
}

// What is not the same is no repetition: another call of the id, an output that a newer turn waits for, or the question
// of a turn whose calls have no output in the input. What a turn began with is one, thoughts and words, too.
func TestWhatIsARepetitionAndWhatIsNot(t *testing.T) {
	t.Parallel()
	model, m := scripted(t, twiceCalling)
	edited := strings.Replace(function("c"), `{}`, `{\"edited\":1}`, 1)
	for _, c := range []struct{ had, input, want []string }{
		{[]string{user("q"), function("c")}, []string{edited, result("c", "x")},
			[]string{"user: q", "assistant: [Tool call: f {}]", "tool: x"}}, // for the edited call
		{[]string{user("q"), function("c"), result("c", "x"), assistant("so x"), user("r"), function("c")},
			[]string{result("c", "x"), user("s")}, []string{"user: q", "assistant: null", "tool: x", "assistant: so x",
				"user: r", "assistant: null", "tool: x", "user: s"}},
		{[]string{user("q"), function("c"), result("c", "x"), assistant("so x")},
			[]string{function("c"), result("c", "x"), user("q")}, []string{"user: q", "assistant: null", "tool: x",
				"assistant: so x", "user: q"}},
		{[]string{user("q"), function("c"), result("c", "x"), assistant("so x")},
			[]string{result("c", "x"), assistant("so x"), user("q")}, []string{"user: q", "assistant: null", "tool: x",
				"assistant: so x", "user: q"}},
		{[]string{user("q"), function("c"), result("c", "x"), assistant("so x")},
			[]string{result("c", "x"), result("c", "x"), user("s")}, []string{"user: q", "assistant: null", "tool: x",
				"assistant: so x", "user: [Tool result: x]", "user: s"}}, // given once, it stands once
		{[]string{user("q"), function("c"), user("r"), assistant("yes")}, []string{user("r"), result("c", "x")},
			[]string{"user: q", "assistant: null", "tool: x", "user: r", "assistant: yes", "user: r"}},
		{[]string{user("q"), assistant("let me"), function("c"), result("c", "x"), assistant("so x")},
			[]string{assistant("let me"), function("c"), result("c", "x"), user("s")}, []string{"user: q",
				"assistant: let me", "assistant: null", "tool: x", "assistant: so x", "user: s"}},
	} {
		s := start(t, answeredBy(m))
		id := s.begin(c.had...)
		s.respondTo(c.input, tool, fmt.Sprintf(`,"conversation":%q`, id))
		require.Equal(t, c.want, <-model.Asked, "%s", c.input)
	}
}

// Calls come again also behind a response that many turns have followed.
func TestCallsComeAgainBehindAnOldResponse(t *testing.T) {
	t.Parallel()
	model, m := scripted(t, twiceCalling)
	s := start(t, answeredBy(m))
	id := s.begin()
	first := s.respondTo([]string{user("a")}, tool, fmt.Sprintf(`,"conversation":%q`, id))
	<-model.Asked
	for range 25 {
		s.post(id, user("more"), assistant("yes"))
	}
	input := append(sentAgain(t, first["output"].([]any))["whole"], result("a-1", "x"), result("a-2", "y"))
	s.respondTo(input, tool, fmt.Sprintf(`,"previous_response_id":%q`, first["id"]))
	require.Equal(t, []string{"user: a", "assistant: null", "tool: x", "tool: y"}, <-model.Asked)
}
