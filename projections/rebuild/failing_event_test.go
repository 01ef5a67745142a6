package rebuild_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
)

// An event that can't be applied ends a rebuild with its position; live it is parked.
func TestRebuildStopsAtAnEventThatCannotBeApplied(t *testing.T) {
	t.Parallel()
	log, v, _ := fed(t, openMemory, 1, 2, 10)
	poisoned := breakable{v, func(g projections.Generation) projections.Generation { return poison{g} }}
	err := rebuilt(t, log, poisoned)
	require.ErrorContains(t, err, "the rebuild stopped at 0:17, which can't be applied: ")
	require.ErrorContains(t, err, "a poisoned row")
	require.Equal(t, uint64(1), number(t, v))
	require.NoError(t, rebuilt(t, log, v))
}

// An event that an operator has dropped is passed over, and stays dropped with who and
// why; one that is only parked stops a rebuild.
func TestRebuildPassesOverWhatAnOperatorDropped(t *testing.T) {
	t.Parallel()
	for name, open := range backends(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := natstest.Log(t, 1)
			fill(t, log, 2, 10)
			v := open(t, log)
			q := desk.Of(log).Queue(v, log, rules)
			live(t, log, poisonedLive{v.View})
			caughtUp(t, log, v)
			poisoned := breakable{v, func(g projections.Generation) projections.Generation { return poison{g} }}

			require.ErrorContains(t, rebuilt(t, log, poisoned), "0:17")
			drop := projections.Drop{Reason: "a test said so", By: "me",
				At: time.Now().UTC().Truncate(time.Millisecond)}
			_, err := q.DropDeadLetter(t.Context(), events.Position{Seq: 17}, drop)
			require.NoError(t, err)
			for range 2 {
				before := number(t, v)
				require.NoError(t, rebuilt(t, log, poisoned))
				require.Greater(t, number(t, v), before)
				letters, err := q.DeadLetters(t.Context())
				require.NoError(t, err)
				require.Len(t, letters, 1)
				require.Equal(t, events.Position{Seq: 17}, letters[0].Position)
				require.Equal(t, &drop, letters[0].Dropped)
			}
			require.NoError(t, rebuilt(t, log, v), "what can be applied by now is")
			letters, err := q.DeadLetters(t.Context())
			require.NoError(t, err)
			require.Empty(t, letters)
			equalsLog(t, log, v, 2)
		})
	}
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
