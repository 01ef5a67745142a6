package contextbuilder_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
	"github.com/turnledger/turnledger/events/natstest"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/history"
)

// The last turn that a branch shares is redacted, and its events leave the log. What the branch showed before it is
// still known.
func TestThePastOfABranchWhoseLastSharedTurnIsErased(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 4)
	writes := history.New(history.On(log), history.Config{Rules: rules})
	natstest.Run(t, writes.Run)
	say := func(session, request string) events.Position {
		made, err := writes.StartTurn(t.Context(), conversation.Start{SessionID: session, RequestID: request,
			Question: events.Question{QuestionNeutral: "q" + request},
			Answer:   &events.Answer{AnswerNeutral: "a" + request}})
		require.NoError(t, err)
		return made.Position
	}
	say("parent", "1")
	last := say("parent", "2")
	_, err := writes.ForkSession(t.Context(), conversation.ForkSession{SessionID: "parent", RequestID: "f",
		ChildID: "branch"})
	require.NoError(t, err)
	own := say("branch", "3")
	_, err = writes.RedactTurn(t.Context(), "parent", conversation.Redact{TurnID: events.TurnID("parent", "2")})
	require.NoError(t, err)
	for _, seq := range []uint64{last.Seq - 1, last.Seq} {
		_, err := overwrite.On(log).Erase(t.Context(), events.Position{Partition: last.Partition, Seq: seq})
		require.NoError(t, err)
	}
	reader := contextbuilder.NewReader(log, contextbuilder.ReaderConfig{Rules: rules})
	got, err := contextbuilder.NewBuilder(reader, contextbuilder.Config{}).Build(t.Context(), services.ContextRequest{
		SessionID: "branch", Message: "now", MaxMessages: 20, AsOf: &services.AsOf{Position: &own},
	})
	require.NoError(t, err)
	var shown []string
	for _, m := range got.Messages {
		shown = append(shown, m.Text())
	}
	require.Equal(t, []string{"q1", "a1", "q3", "a3", "now"}, shown)
}
