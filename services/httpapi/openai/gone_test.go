package openai_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
)

// remembering is a client of openai-python that keeps its history itself: ids stand on outputs only.
type remembering struct {
	*stack

	model   *modeltest.Server
	history []string
}

func remembers(t *testing.T) *remembering {
	t.Helper()
	model, m := scripted(t, func(prompt []string) modeltest.Answer {
		return modeltest.Answer{Text: "to " + last(prompt)}
	})
	return &remembering{stack: start(t, answeredBy(m)), model: model}
}

// ask asks behind the history, and returns the response and what the model was asked.
func (r *remembering) ask(text string) (response string, prompt []string) {
	r.t.Helper()
	r.history = append(r.history, user(text))
	made := r.respondTo(r.history)
	raw, err := json.Marshal(made["output"].([]any)[0])
	require.NoError(r.t, err)
	r.history = append(r.history, string(raw))
	return made["id"].(string), <-r.model.Asked
}

// dialogue is what a model is asked when these questions stand.
func dialogue(questions ...string) (out []string) {
	for n, q := range questions {
		if out = append(out, "user: "+q); n < len(questions)-1 {
			out = append(out, "assistant: to user: "+q)
		}
	}
	return out
}

// A first turn that was deleted does not come back, however often the history comes.
func TestAHistoryWhoseFirstTurnIsDeleted(t *testing.T) {
	t.Parallel()
	r := remembers(t)
	first, _ := r.ask("SECRET")
	id := r.sessionOf(first)
	r.must("DELETE", "/v1/responses/"+first, "")
	for n, standing := range [][]string{{"q2"}, {"q2", "q3"}, {"q2", "q3", "q4"}} {
		made, prompt := r.ask(standing[n])
		require.Equal(t, dialogue(standing...), prompt)
		require.Equal(t, id, r.sessionOf(made))
	}
}

// Nor does it if somebody else went on behind it, where the history goes on in a session or a branch of its own.
func TestAHistoryWithADeletedTurnGoesOnTwice(t *testing.T) {
	t.Parallel()
	for _, standing := range [][]string{nil, {"q1"}} {
		r := remembers(t)
		for _, q := range standing {
			r.ask(q)
		}
		deleted, _ := r.ask("SECRET")
		r.must("DELETE", "/v1/responses/"+deleted, "")
		before := r.history
		for _, q := range []string{"a", "b"} {
			r.history = before[:len(before):len(before)]
			asked := standing
			for _, q := range []string{q, "more", "again"} {
				asked = append(asked[:len(asked):len(asked)], q)
				_, prompt := r.ask(q)
				require.Equal(t, dialogue(asked...), prompt)
			}
		}
	}
}

// In a conversation, too, what stands before a deleted answer goes with it.
func TestADeletedTurnComesAgainInAConversation(t *testing.T) {
	t.Parallel()
	model, m := scripted(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "yes"} })
	s := start(t, answeredBy(m))
	id := s.begin()
	in := `,"conversation":"` + id + `"`
	r := s.respondTo([]string{user("SECRET")}, in)
	<-model.Asked
	s.must("DELETE", "/v1/responses/"+r["id"].(string), "")
	s.post(id, user("q2"), assistant("a2"))
	raw, err := json.Marshal(r["output"].([]any)[0])
	require.NoError(t, err)
	s.respondTo([]string{user("SECRET"), string(raw), user("next")}, in)
	require.Equal(t, []string{"user: q2", "assistant: a2", "user: next"}, <-model.Asked)
}

// A last turn that was deleted is neither a reason for a branch, nor does it come back.
func TestAHistoryWhoseLastTurnIsDeleted(t *testing.T) {
	t.Parallel()
	r := remembers(t)
	first, _ := r.ask("q1")
	id := r.sessionOf(first)
	second, _ := r.ask("SECRET")
	require.Equal(t, id, r.sessionOf(second))
	r.must("DELETE", "/v1/responses/"+second, "")
	for n, standing := range [][]string{{"q1", "q3"}, {"q1", "q3", "q4"}, {"q1", "q3", "q4", "q5"}} {
		made, prompt := r.ask(standing[n+1])
		require.Equal(t, dialogue(standing...), prompt)
		require.Equal(t, id, r.sessionOf(made))
	}
	require.Empty(t, r.branches(id))
}

// A turn that was deleted does not come back into a branch that was made of an earlier turn, nor behind an edit or a
// front that was trimmed.
func TestAHistoryWithADeletedTurnBehindAnEdit(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(history []string) []string{
		"edited":  func(h []string) []string { h[2] = user("edited"); return h },
		"trimmed": func(h []string) []string { return h[2:] },
	} {
		r := remembers(t)
		r.ask("q1")
		r.ask("q2")
		third, _ := r.ask("SECRET")
		r.must("DELETE", "/v1/responses/"+third, "")
		r.history = edit(r.history)
		for _, q := range []string{"q4", "q5", "q6"} {
			_, prompt := r.ask(q)
			require.NotContains(t, prompt, "user: SECRET", name)
			require.NotContains(t, prompt, "assistant: to user: SECRET", name)
			require.Len(t, prompt, len(r.history)-3, "%s: %v", name, prompt)
		}
	}
}

// What has left the log leads to its session all the same, by the ids of its items.
func TestAHistoryWhoseWordsHaveLeftTheLog(t *testing.T) {
	t.Parallel()
	r := remembers(t)
	first, _ := r.ask("SECRET")
	id := r.sessionOf(first)
	r.must("DELETE", "/v1/conversations/"+id+"/items/"+ids(r.given(first))[0], "")
	r.erasePruned(id)
	for n, q := range []string{"q2", "q3"} {
		made, prompt := r.ask(q)
		require.Equal(t, dialogue("SECRET", "q2", "q3")[1:3+2*n], prompt)
		require.Equal(t, id, r.sessionOf(made))
	}
}

// So do ten items of a last turn that is gone, with older turns before it.
func TestAHistoryWhoseLongLastTurnHasLeftTheLog(t *testing.T) {
	t.Parallel()
	model, m := scripted(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "yes"} })
	s := start(t, answeredBy(m))
	id := s.begin(user("q1"), assistant("a1"))
	s.post(id, many(10), assistant("a2"))
	history := agentsHistory(s, id)
	s.must("POST", "/v1/sessions/"+id+"/turns/"+s.turns(id)[1]["turn_id"].(string)+"/redact", `{}`)
	s.erasePruned(id)
	for n := range 2 {
		history = append(history, user("next"))
		s.respondTo(history)
		require.Len(t, <-model.Asked, 3+2*n)
		history = append(history, assistant("yes"))
	}
}
