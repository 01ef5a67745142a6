package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/cmd/turnledger/systemtest/stack"
)

// explained is what explain --json prints, as far as the tests look at it.
type explained struct {
	AsOf    string            `json:"as_of"`
	Events  []json.RawMessage `json:"events"`
	Context struct {
		Messages int `json:"history_messages"`
		Turns    int `json:"history_turns"`
		Dropped  int `json:"dropped_turns"`
	} `json:"context"`
	Turns []explainedTurn `json:"turns"`
}

type explainedTurn struct {
	TurnID   string `json:"turn_id"`
	Position string `json:"position"`
	Seen     string `json:"seen"`
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
		{gone, "0:1", "redacted"},
		{earlier[0], "0:3", "left out by the window"}, {earlier[1], "0:5", "left out by the window"},
		{earlier[2], "0:7", "shown"}, {earlier[3], "0:9", "shown"},
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
	code, _, _ = p.Run(t, "explain", "s", "x")
	require.Equal(t, stack.ExitUsage, code)
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
		require.Equal(t, []explainedTurn{{first, "0:1", "shown"}}, x.Turns)
		require.Equal(t, []int{2, 1, 0}, []int{x.Context.Messages, x.Context.Turns, x.Context.Dropped})
	}
}
