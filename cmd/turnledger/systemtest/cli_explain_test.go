package systemtest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

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

func TestExplainATurn(t *testing.T) {
	t.Parallel()
	p := stack.Serve(t, nil)
	gone := p.RecordTurn(t, "s", "gone", "SECRET", "SECRET")
	var earlier []string
	for k := range 4 {
		earlier = append(earlier, p.RecordTurn(t, "s", fmt.Sprint(k), fmt.Sprint("question ", k),
			fmt.Sprint("answer ", k)))
	}
	turn := p.RecordTurn(t, "s", "this", "WHY", "BECAUSE")
	p.RecordTurn(t, "s", "later", "later", "later")
	p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("s")+"/turns/"+gone+"/redact", nil)

	code, out, said := p.Run(t, "explain", "s", turn, "--max-messages", "4", "--json")
	require.Zero(t, code, said)
	var x explained
	require.NoError(t, json.Unmarshal([]byte(out), &x))
	require.Equal(t, "0:11", x.AsOf)
	require.Len(t, x.Events, 2)
	require.Equal(t, []int{4, 2, 2}, []int{x.Context.Messages, x.Context.Turns, x.Context.Dropped})
	require.Equal(t, []explainedTurn{
		{"s", gone, "0:1", "redacted", false},
		{"s", earlier[0], "0:3", "left out by the window", false},
		{"s", earlier[1], "0:5", "left out by the window", false},
		{"s", earlier[2], "0:7", "shown", false}, {"s", earlier[3], "0:9", "shown", false},
	}, x.Turns)
	_, out, _ = p.Run(t, "explain", "s", turn)
	require.NotContains(t, out, "question 3")
	require.NotContains(t, out, "WHY")
	_, out, _ = p.Run(t, "explain", "s", turn, "--text")
	require.Contains(t, out, "user: question 3\nassistant: answer 3\nuser: WHY\n")
	require.NotContains(t, out, "SECRET")
	code, _, said = p.Run(t, "explain", "s", "00000000-0000-0000-0000-000000000001")
	require.Equal(t, stack.ExitFailed, code)
	require.Contains(t, said, "no such turn")
}

// A correction has no prompt of its own, so explain shows what the prompt of the corrected turn could see. The other
// versions of that turn are not listed among the turns before it.
func TestExplainACorrectedTurn(t *testing.T) {
	t.Parallel()
	p := stack.Serve(t, nil)
	first := p.RecordTurn(t, "s", "1", "question 1", "answer 1")
	wrong := p.RecordTurn(t, "s", "2", "question 2", "wrong")
	corrected := p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("s")+"/turns/"+wrong+"/correct",
		map[string]any{"request_id": "2b", "question_neutral": "question 2",
			"answer_neutral": "right"})["turn_id"].(string)
	p.RecordTurn(t, "s", "3", "about "+corrected, "answer 3")
	p.RecordTurn(t, "s", "4", "question 4", "answer 4")
	for _, version := range []string{wrong, corrected} {
		code, out, said := p.Run(t, "explain", "s", version, "--json")
		require.Zero(t, code, said)
		var x explained
		require.NoError(t, json.Unmarshal([]byte(out), &x))
		require.Equal(t, "0:3", x.AsOf)
		require.Len(t, x.Events, 3)
		require.Equal(t, []explainedTurn{{"s", first, "0:1", "shown", false}}, x.Turns)
		require.Equal(t, []int{2, 1, 0}, []int{x.Context.Messages, x.Context.Turns, x.Context.Dropped})
	}
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
	for _, partitions := range []string{"1", "8"} {
		t.Run(partitions+" partitions", func(t *testing.T) {
			t.Parallel()
			explainBranches(t, stack.Serve(t, []string{"TURNLEDGER_PARTITIONS=" + partitions}))
		})
	}
}

func explainBranches(t *testing.T, p *stack.Process) {
	t.Helper()
	explain := func(session, turn string, more ...string) (x explained) {
		t.Helper()
		code, out, said := p.Run(t, append([]string{"explain", session, turn, "--json"}, more...)...)
		require.Zero(t, code, said)
		require.NoError(t, json.Unmarshal([]byte(out), &x))
		for i := range x.Turns {
			x.Turns[i].Position = ""
		}
		return x
	}
	var shared []string
	for k := range 4 {
		shared = append(shared, p.RecordTurn(t, "stem", fmt.Sprint(k), fmt.Sprint("question ", k),
			fmt.Sprint("answer ", k)))
	}
	fork(t, p, "stem", "branch", shared[3])
	p.RecordTurn(t, "stem", "later", "later", "later")
	own := p.RecordTurn(t, "branch", "1", "own", "own")
	asked := p.RecordTurn(t, "branch", "2", "WHY", "BECAUSE")
	// The last shared turn is redacted too, and its events leave the log.
	for _, gone := range []string{shared[0], shared[3]} {
		p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("stem")+"/turns/"+gone+"/redact", nil)
	}
	p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("stem")+"/turns/"+shared[1]+"/correct",
		map[string]any{"request_id": "better", "question_neutral": "better"})

	x := explain("branch", asked, "--max-messages", "4", "--text")
	require.False(t, x.Inherited)
	require.Equal(t, []explainedTurn{
		{"stem", shared[0], "", "redacted", true}, {"stem", shared[1], "", "left out by the window", true},
		{"stem", shared[2], "", "shown", true}, {"stem", shared[3], "", "redacted", true},
		{"branch", own, "", "shown", false},
	}, x.Turns, "what was corrected later was in the prompt as it stood")
	require.Equal(t, []int{4, 2, 1}, []int{x.Context.Messages, x.Context.Turns, x.Context.Dropped})
	_, out, _ := p.Run(t, "explain", "branch", asked, "--text")
	require.Contains(t, out, "user: question 1\nassistant: answer 1\nuser: question 2\nassistant: answer 2\n"+
		"user: own\nassistant: own\nuser: WHY\n")
	require.Contains(t, out, "shown  (inherited from stem)\n")

	fork(t, p, "branch", "twig", own)
	x = explain("twig", shared[2])
	require.Equal(t, []any{"stem", true}, []any{x.Session, x.Inherited})
	require.Equal(t, []explainedTurn{
		{"stem", shared[0], "", "redacted", false}, {"stem", shared[1], "", "shown", false},
	}, x.Turns)
	require.Equal(t, explain("stem", shared[2]).AsOf, x.AsOf)
	x = explain("twig", own)
	require.Equal(t, []any{"branch", true}, []any{x.Session, x.Inherited})
	require.Equal(t, explainedTurn{"stem", shared[2], "", "shown", true}, x.Turns[2])
	_, out, _ = p.Run(t, "explain", "twig", own)
	require.Contains(t, out, "of session branch, which the branch shares\n")

	p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("twig")+"/reset", nil)
	x = explain("twig", p.RecordTurn(t, "twig", "3", "anew", "anew"))
	require.Equal(t, explainedTurn{"branch", own, "", "before a reset or a silence", true}, x.Turns[len(x.Turns)-1])
	code, _, said := p.Run(t, "explain", "branch", explain("stem", p.RecordTurn(t, "stem", "x", "x", "x")).Turn)
	require.Equal(t, stack.ExitFailed, code, "a later turn of the parent is none of the branch's")
	require.Contains(t, said, "no such turn")
}

// Of turns that the window left out, explain names those that a summary stood for: one that stood when the turn was
// asked, and still stands.
func TestExplainNamesSummarisedTurns(t *testing.T) {
	t.Parallel()
	p := stack.Shared(t)
	shared := p.RecordTurn(t, "stem", "0", "question", "answer")
	p.Must(t, http.StatusCreated, http.MethodPost, stack.SessionPath("stem")+"/fork",
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
		code, printed, said := p.Run(t, append([]string{"explain", "summarised", turn, "--max-messages", "2", "--json"},
			flags...)...)
		require.Zero(t, code, said)
		var x explained
		require.NoError(t, json.Unmarshal([]byte(printed), &x))
		require.NotContains(t, printed, "SECRET")
		for _, t := range x.Turns {
			out = append(out, t.Seen)
		}
		return out
	}
	const left = "left out by the window"
	require.Equal(t, []string{"summarised", "summarised", left, "shown"}, seen("--summary"))
	require.Equal(t, []string{left, left, left, "shown"}, seen())
	p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("stem")+"/turns/"+shared+"/redact", nil)
	require.Equal(t, []string{"redacted", left, left, "shown"}, seen("--summary"))
}
