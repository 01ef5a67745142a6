package rebuild_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
)

// An event that an operator has dropped is passed over, and stays dropped with who and
// why; one that is only parked stops a rebuild.
func TestRebuildPassesOverWhatAnOperatorDropped(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		log := natstest.Log(t, 1)
		fill(t, log, 2, 10)
		v := open(t, log)
		q := desk.Of(log).Queue(v, log, rules)
		live(t, log, poisonedLive{v.View})
		caughtUp(t, log, v)
		poisoned := breakable{v, func(g projections.Generation) projections.Generation { return poison{g} }}

		require.ErrorContains(t, rebuilt(t, log, poisoned),
			"the rebuild stopped at 0:17, which can't be applied: a poisoned row")
		require.Equal(t, uint64(1), number(t, v))
		drop := projections.Drop{Reason: "a test said so", By: "me",
			At: time.Now().UTC().Truncate(time.Millisecond)}
		must.Get(q.DropDeadLetter(t.Context(), events.Position{Seq: 17}, drop))(t)
		for range 2 {
			before := number(t, v)
			require.NoError(t, rebuilt(t, log, poisoned))
			require.Greater(t, number(t, v), before)
			letters := must.Get(q.DeadLetters(t.Context()))(t)
			require.Len(t, letters, 1)
			require.Equal(t, events.Position{Seq: 17}, letters[0].Position)
			require.Equal(t, &drop, letters[0].Dropped)
		}
		require.NoError(t, rebuilt(t, log, v), "what can be applied by now is")
		require.Empty(t, must.Get(q.DeadLetters(t.Context()))(t))
		equalsLog(t, log, v, 2)
	})
}

type poisonedLive struct{ viewtest.View }

func (p poisonedLive) Apply(ctx context.Context, b projections.Batch) error {
	if err := poisoned(b); err != nil {
		return err
	}
	return p.View.Apply(ctx, b)
}

func poisoned(b projections.Batch) error {
	for _, e := range b.Events {
		if e.Position.Seq == 17 {
			return projections.Permanent(errors.New("a poisoned row"))
		}
	}
	return nil
}

type poison struct{ projections.Generation }

func (p poison) Apply(ctx context.Context, b projections.Batch) error {
	if err := poisoned(b); err != nil {
		return err
	}
	return p.Generation.Apply(ctx, b)
}
