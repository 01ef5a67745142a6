package contextbuilder_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/read"
)

func exchange(from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint("user: q", i), fmt.Sprint("assistant: a", i))
	}
	return append(out, "user: now")
}

// Where a call names no window, turns leave a full one in blocks: two of three prompts begin as the one before. Views,
// the log and the past agree on the window, however many turns a view holds, and whether a turn that is never shown is
// among them.
func TestPromptsBeginAsTheLastOneDid(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	ask := func(view read.View, req services.ContextRequest) services.Context {
		r := read.New(log, read.Config{Rules: rules, View: view})
		b := contextbuilder.NewBuilder(r, contextbuilder.Config{Blocks: true})
		req.SessionID, req.Message = "s", "now"
		return must.Get(b.Build(t.Context(), req))(t)
	}
	first, same, full := "", 0, 0
	var past [][]string
	var at []events.Position
	for i := range 40 {
		if i == 15 {
			id := events.TurnID("s", "no")
			natstest.Append(t, log, &events.TurnStarted{TurnID: id, SessionID: "s", RequestID: "no",
				Question: events.Question{QuestionNeutral: "refused"}})
			natstest.Append(t, log, &events.TurnFinalized{TurnID: id, SessionID: "s",
				Answer:   events.Answer{AnswerMessages: json.RawMessage(`[{"role":"assistant","content":""}]`)},
				Metadata: json.RawMessage(`{"finish_reason":"content_filter"}`)})
		}
		at = append(at, logtest.Turn(t, log, "s", fmt.Sprint(i), fmt.Sprint("q", i), fmt.Sprint("a", i)))
		r := ask(nil, services.ContextRequest{})
		shown := texts(t, r)
		require.Equal(t, i+1, r.HistoryTurns+r.DroppedTurns)
		require.Equal(t, exchange(i+1-r.HistoryTurns, i+1), shown)
		if past = append(past, shown); i >= 10 {
			require.LessOrEqual(t, r.HistoryMessages, 20)
			require.GreaterOrEqual(t, r.HistoryMessages, 15)
			full++
			if shown[0] == first {
				same++
			}
		}
		first = shown[0]
		for _, keep := range []int{12, 14, 25} {
			view := &viewtest.Still{State: viewtest.Folded(t, log, rules, "s", at[i].Seq, keep), At: at[i].Seq}
			require.Equal(t, shown, texts(t, ask(view, services.ContextRequest{})), "turn %d, kept %d", i, keep)
		}
	}
	require.GreaterOrEqual(t, 3*same, 2*full-3, "%d of %d", same, full)
	for i, p := range at {
		require.Equal(t, past[i], texts(t, ask(nil, services.ContextRequest{AsOf: &services.AsOf{Position: &p}})))
	}
	for _, exact := range []services.ContextRequest{{MaxMessages: 20}, {MaxTokens: 1 << 20}} {
		require.Equal(t, exchange(30, 40), texts(t, ask(nil, exact)))
	}
}
