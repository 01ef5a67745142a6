package systemtest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// explained is what explain --json prints, as far as the tests look at it.
type explained struct {
	Session   string            `json:"session_id"`
	Turn      string            `json:"turn_id"`
	Inherited bool              `json:"inherited"`
	AsOf      string            `json:"as_of"`
	Events    []json.RawMessage `json:"events"`
	Context   struct {
		Messages int `json:"history_messages"`
		Turns    int `json:"history_turns"`
		Dropped  int `json:"dropped_turns"`
	} `json:"context"`
	Turns []explainedTurn `json:"turns"`
}

type explainedTurn struct {
	SessionID string `json:"session_id"`
	TurnID    string `json:"turn_id"`
	Position  string `json:"position"`
	Seen      string `json:"seen"`
	Inherited bool   `json:"inherited"`
}

// explain returns what the verb prints of a turn, without the positions of earlier ones: others write to the log, too.
func explain(t *testing.T, p *stack.Process, session, turn string, more ...string) (x explained) {
	t.Helper()
	out := p.Done(t, append([]string{"explain", session, turn, "--json"}, more...)...)
	require.NotContains(t, out, "SECRET")
	require.NoError(t, json.Unmarshal([]byte(out), &x))
	for i := range x.Turns {
		x.Turns[i].Position = ""
	}
	return x
}

// fork makes a branch of a session, up to and with a turn.
func fork(t *testing.T, p *stack.Process, session, branch, turn string) {
	t.Helper()
	p.Must(t, http.StatusCreated, http.MethodPost, stack.SessionPath(session)+"/fork",
		map[string]any{"request_id": branch, "session_id": branch, "turn_id": turn})
}

// A branch's turn was answered from turns that the branch shares. An inherited turn is explained in its own session,
// also where that is a branch itself.
func TestExplainTurnsOfBranches(t *testing.T) {
	t.Parallel()
	p := stack.Shared(t)
	var shared []string
	for k := range 4 {
		shared = append(shared, p.RecordTurn(t, "the stem", fmt.Sprint(k), fmt.Sprint("question ", k),
			fmt.Sprint("answer ", k)))
	}
	fork(t, p, "the stem", "the branch", shared[3])
	p.RecordTurn(t, "the stem", "later", "later", "later")
	own := p.RecordTurn(t, "the branch", "1", "own", "own")
	asked := p.RecordTurn(t, "the branch", "2", "WHY", "BECAUSE")
	// The last shared turn is redacted too, and its events leave the log.
	for _, gone := range []string{shared[0], shared[3]} {
		p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("the stem")+"/turns/"+gone+"/redact", nil)
	}
	p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("the stem")+"/turns/"+shared[1]+"/correct",
		map[string]any{"request_id": "better", "question_neutral": "better"})

	x := explain(t, p, "the branch", asked, "--max-messages", "4", "--text")
	require.False(t, x.Inherited)
	require.Equal(t, []explainedTurn{
		{"the stem", shared[0], "", "redacted", true}, {"the stem", shared[1], "", "left out by the window", true},
		{"the stem", shared[2], "", "shown", true}, {"the stem", shared[3], "", "redacted", true},
		{"the branch", own, "", "shown", false},
	}, x.Turns, "what was corrected later was in the prompt as it stood")
	require.Equal(t, []int{4, 2, 1}, []int{x.Context.Messages, x.Context.Turns, x.Context.Dropped})
	must.Lack(t, p.Done(t, "explain", "the branch", asked), "question 1", "WHY")
	out := p.Done(t, "explain", "the branch", asked, "--text")
	must.Contain(t, out, "user: question 1\nassistant: answer 1\nuser: question 2\nassistant: answer 2\n"+
		"user: own\nassistant: own\nuser: WHY\n", "shown  (inherited from the stem)\n")

	fork(t, p, "the branch", "the twig", own)
	x = explain(t, p, "the twig", shared[2])
	require.Equal(t, []any{"the stem", true}, []any{x.Session, x.Inherited})
	require.Equal(t, []explainedTurn{
		{"the stem", shared[0], "", "redacted", false}, {"the stem", shared[1], "", "shown", false},
	}, x.Turns)
	require.Equal(t, explain(t, p, "the stem", shared[2]).AsOf, x.AsOf)
	x = explain(t, p, "the twig", own)
	require.Equal(t, []any{"the branch", true}, []any{x.Session, x.Inherited})
	require.Equal(t, explainedTurn{"the stem", shared[2], "", "shown", true}, x.Turns[2])
	require.Contains(t, p.Done(t, "explain", "the twig", own), "of session the branch, which the branch shares\n")

	p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("the twig")+"/reset", nil)
	x = explain(t, p, "the twig", p.RecordTurn(t, "the twig", "3", "anew", "anew"))
	require.Equal(t, explainedTurn{"the branch", own, "", "before a reset or a silence", true}, x.Turns[len(x.Turns)-1])
	said := p.Fails(t, "explain", "the branch", p.RecordTurn(t, "the stem", "x", "x", "x"))
	require.Contains(t, said, "no such turn")
}

// Of turns that the window left out, explain names those that a summary stood for: one that stood when the turn was
// asked, and still stands.
func TestExplainNamesSummarisedTurns(t *testing.T) {
	t.Parallel()
	p := stack.Shared(t)
	shared := p.RecordTurn(t, "shared", "0", "question", "answer")
	p.Must(t, http.StatusCreated, http.MethodPost, stack.SessionPath("shared")+"/fork",
		map[string]any{"request_id": "f", "session_id": "summarised"})
	var earlier []string
	for k := range 3 {
		earlier = append(earlier, p.RecordTurn(t, "summarised", fmt.Sprint(k), "question", "answer"))
	}
	summarise := func(request, through string) {
		p.Must(t, http.StatusCreated, http.MethodPost, stack.SessionPath("summarised")+"/summaries",
			map[string]any{"request_id": request, "through_turn_id": through, "summary_neutral": "SECRET"})
	}
	summarise("then", earlier[0])
	turn := p.RecordTurn(t, "summarised", "this", "question", "answer")
	summarise("later", earlier[1])
	seen := func(flags ...string) (out []string) {
		for _, t := range explain(t, p, "summarised", turn, append(flags, "--max-messages", "2")...).Turns {
			out = append(out, t.Seen)
		}
		return out
	}
	const left = "left out by the window"
	require.Equal(t, []string{"summarised", "summarised", left, "shown"}, seen("--summary"))
	require.Equal(t, []string{left, left, left, "shown"}, seen())
	p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("shared")+"/turns/"+shared+"/redact", nil)
	require.Equal(t, []string{"redacted", left, left, "shown"}, seen("--summary"))
}
