package projections_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
)

// shown is a sink that notes where its commits end, and can't apply some sequences.
type shown struct {
	refuses []uint64
	ends    []uint64
}

func (s *shown) Name() string { return "shown" }

func (s *shown) Claim(context.Context, int) (projections.Checkpoint, error) {
	return projections.Checkpoint{}, nil
}

func (s *shown) Apply(_ context.Context, b projections.Batch) error {
	for i := range b.Events {
		if slices.Contains(s.refuses, b.Events[i].Position.Seq) {
			return projections.Permanent(errors.New("it can't be applied"))
		}
	}
	s.ends = append(s.ends, b.To.Seq)
	return nil
}

// While an event that can't be applied is looked for, nobody sees another link without its turn.
//
//conformance:l2
func TestTheSearchForADeadLetterCutsNoChange(t *testing.T) {
	t.Parallel()
	const length = 17
	for refused := range uint64(length) {
		// An event alone, then links with their turns.
		run := make([]projections.Judged, length)
		inside := map[uint64]bool{}
		for i, left := 0, 0; i < length; i++ {
			run[i].Recorded = events.Recorded{Position: events.Position{Seq: uint64(i + 1)}}
			if left == 0 && i > 0 {
				left = 2
			}
			left = max(left-1, 0)
			run[i].Continues = left > 0 && i < length-1
			inside[uint64(i+1)] = run[i].Continues
		}
		sink := &shown{refuses: []uint64{refused + 1}}
		var parked []uint64
		in := projections.Intake{
			Sink: sink, Done: func(projections.Batch) {},
			Park: func(_ context.Context, b projections.Batch, _ error) error {
				parked = append(parked, b.Events[0].Position.Seq)
				return nil
			},
		}
		require.NoError(t, in.Apply(t.Context(), run))
		require.Equal(t, sink.refuses, parked)
		require.EqualValues(t, length, in.At.Seq)
		for _, end := range sink.ends {
			of := func(seq uint64) uint64 { // the first event of its change
				for seq > 1 && inside[seq-1] {
					seq--
				}
				return seq
			}
			if inside[end] {
				require.Equal(t, of(refused+1), of(end), "%d is refused, and a commit ends with %d", refused+1, end)
			}
		}
	}
}
