package write_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
)

// A batch may have more turns of one session than the log takes in one append.
func TestABatchHasMoreTurnsThanOneAppendTakes(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	const turns = 600
	for i, o := range run(t, log).StartTurns(t.Context(), turnsOf(turns, "s")) {
		require.NoError(t, o.Err, i)
		require.EqualValues(t, i+1, o.Turn.Position.Seq)
	}
	st := natstest.Fold(t, log, "s", session.Rules{})
	require.Len(t, st.Turns, turns)
	for i, turn := range st.Turns {
		require.Equal(t, fmt.Sprint("r", i), turn.RequestID)
	}
}

// once is a log that does not answer its first append.
type once struct {
	*jetlog.Log
	failed atomic.Bool
}

func (l *once) Append(ctx context.Context, a jetlog.Append) (jetlog.Ack, error) {
	if !l.failed.Swap(true) {
		return jetlog.Ack{}, jetlog.ErrUnavailable
	}
	return l.Log.Append(ctx, a)
}

// After a line whose outcome is open, no later line of its session is tried: else the turns would be in another order
// when the batch comes again.
func TestNoLineOfASessionOvertakesOneThatFailed(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	s := runOn(t, &once{Log: log})
	// The second line can't share an append with the first.
	lines := []decide.Start{start("s", "1"), wholeTurn("s", "1"), wholeTurn("s", "2")}
	for i, o := range s.StartTurns(t.Context(), lines) {
		require.ErrorIs(t, o.Err, jetlog.ErrUnavailable, i)
	}
	require.Zero(t, head(t, log))
	for i, o := range s.StartTurns(t.Context(), lines) {
		require.NoError(t, o.Err, i)
	}
	require.EqualValues(t, 3, head(t, log))
}
