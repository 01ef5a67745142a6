package read_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/read"
	"github.com/turnledger/turnledger/services/write"
)

// What is pruned in a session is pruned in its branches and in its past, whether or not the turn's events are still in
// the log. What extended the turn after the fork stays out of the branch, and what came later out of the past. The
// summaries of both are void.
func TestAPruneHoldsInBranchesAndInThePast(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 4)
	writes := write.New(write.On(log), write.Config{Rules: rules})
	natstest.Run(t, writes.Run)
	ctx := t.Context()
	turn := events.TurnID("parent", "1")
	must.Get(writes.StartTurn(ctx, decide.Start{SessionID: "parent", RequestID: "1",
		Question: events.Question{QuestionNeutral: "q1"}, Answer: &events.Answer{AnswerNeutral: "a1"}}))(t)
	extend := func(id string) events.Position {
		made, err := writes.ExtendTurn(ctx, decide.Extend{SessionID: "parent", TurnID: turn, ExtensionID: id,
			Extension: events.Extension{Half: events.HalfAnswer, AnswerNeutral: id,
				Messages: []byte(`[{"role":"assistant","content":"` + id + `"},` +
					`{"role":"assistant","content":"GOES"}]`)}})
		require.NoError(t, err)
		return made.Position
	}
	summarize := func(sessionID string) {
		must.Get(writes.SummarizeSession(ctx, decide.Summarize{ThroughTurnID: turn,
			Summary: events.SessionSummarized{SessionID: sessionID, RequestID: "m", SummaryNeutral: "GOES"}}))(t)
	}
	extend("first")
	_, err := writes.ForkSession(ctx, decide.ForkSession{SessionID: "parent", RequestID: "f", ChildID: "branch"})
	require.NoError(t, err)
	second := extend("second")
	last := extend("third")
	reader := read.New(log, read.Config{Rules: rules})
	shown := func(sessionID string, at *services.AsOf) (out []string) {
		t.Helper()
		reading, err := reader.Read(ctx, services.Ask{SessionID: sessionID, AllTurns: true})
		if at != nil {
			reading, _, err = reader.AsOf(ctx, sessionID, *at)
		}
		require.NoError(t, err)
		for _, x := range reading.State.Turns {
			var list []struct{ Content string }
			require.NoError(t, json.Unmarshal(x.Answer.AnswerMessages, &list))
			for _, m := range list {
				out = append(out, m.Content)
			}
			require.Equal(t, out[len(out)-1], x.Answer.AnswerNeutral)
		}
		require.Empty(t, reading.State.Standing())
		return out
	}
	summarize("parent")
	summarize("branch")
	must.Get(writes.PruneTurn(ctx, decide.Prune{SessionID: "parent", TurnID: turn, PruneID: "p",
		Keep: func(m session.Message) json.RawMessage {
			if strings.Contains(string(m.Raw), "GOES") {
				return nil
			}
			return m.Raw
		}}))(t)
	for _, erased := range []bool{false, true} {
		if erased {
			for seq := uint64(1); seq <= last.Seq; seq++ {
				e, found, err := log.At(ctx, events.Position{Partition: last.Partition, Seq: seq})
				require.NoError(t, err)
				if found && events.NamesOf(e.Fact).TurnID == turn {
					must.Get(overwrite.On(log).Erase(ctx, e.Position))(t)
				}
			}
			reader = read.New(log, read.Config{Rules: rules})
		}
		require.Equal(t, []string{"a1", "first", "second", "third"}, shown("parent", nil))
		require.Equal(t, []string{"a1", "first"}, shown("branch", nil))
		require.Equal(t, []string{"a1", "first", "second"}, shown("parent", &services.AsOf{Position: &second}))
	}
	must.Get(writes.SummarizeSession(ctx, decide.Summarize{ThroughTurnID: turn,
		Summary: events.SessionSummarized{SessionID: "branch", RequestID: "m2", SummaryNeutral: "of what is left"}}))(t)
	reading := must.Get(reader.Read(ctx, services.Ask{SessionID: "branch", AllTurns: true}))(t)
	require.Len(t, reading.State.Standing(), 1)
}
