package history_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/jetlog"
)

// before is a log in which another process writes right before an append.
type before struct {
	*jetlog.Log
	theirs events.Fact
}

func (l *before) Append(ctx context.Context, a jetlog.Append) (jetlog.Ack, error) {
	if f := l.theirs; f != nil {
		l.theirs = nil
		if _, err := l.Log.Append(ctx, jetlog.Append{Facts: []events.Fact{f}}); err != nil {
			return jetlog.Ack{}, err
		}
	}
	return l.Log.Append(ctx, a)
}

// Another process links the session to somebody else right before a batch does, of which the last line needs no append.
// The batch is refused, and leaves no turn.
func TestABatchThatLosesTheLinkLeavesNoTurn(t *testing.T) {
	t.Parallel()
	log := &before{Log: natstest.Log(t, 1)}
	s := runOn(t, log)
	_, err := s.StartTurn(t.Context(), start("s", "stands"))
	require.NoError(t, err)
	lines := []conversation.Start{wholeTurn("s", "new"), wholeTurn("s", "stands")}
	for i := range lines {
		lines[i].IdentityID, lines[i].OnlyNew = "ada", true
	}
	log.theirs = &events.SessionLinked{SessionID: "s", IdentityID: "bob"}
	for i, o := range s.StartTurns(t.Context(), lines) {
		require.ErrorIs(t, o.Err, conversation.ErrLinkedElsewhere, i)
	}
	st := natstest.Fold(t, log.Log, "s", conversation.Rules{})
	require.Equal(t, "bob", st.Identity)
	require.Nil(t, st.Turn(events.TurnID("s", "new")))
}
