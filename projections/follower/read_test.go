package follower_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections/follower"
)

// Read says what Follow says: its mark stands at the beginning once it is opened, though nothing may come for long. A
// beginning and a reader that fail are asked again, and the reader is given the same events.
func TestAReadBeginsWhereItIsToldAndGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	writeTurns(t, log, "s", 3, 10)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mark jetlog.Watermark
	var taken []uint64
	var warned []error
	begun, opened, failed := 0, 0, false
	fault := errors.New("the reader can't")
	require.NoError(t, follower.Alone(log, follower.Config{Rules: rules}).Read(ctx, jetlog.Following{
		Options: jetlog.TailOptions{MaxBatch: 1}, Watermark: &mark, Pause: time.Millisecond,
		Begin: func(context.Context) (uint64, error) {
			if begun++; begun == 1 {
				return 0, fault
			}
			return 1, nil
		},
		Opened: func() {
			opened++
			require.EqualValues(t, 1, mark.At())
		},
		Read: func(_ context.Context, batch []jetlog.Message) error {
			seq := batch[0].Position.Seq
			require.Equal(t, seq-1, mark.At())
			if seq == 2 && !failed {
				failed = true
				return fault
			}
			if taken = append(taken, seq); seq == 3 {
				cancel()
			}
			return nil
		},
		Warn: func(err error) { warned = append(warned, err) },
	}), "ctx has ended")
	require.Equal(t, []uint64{2, 3}, taken)
	require.Equal(t, []error{fault, fault}, warned)
	require.Equal(t, [2]int{2, 1}, [2]int{begun, opened})
	require.EqualValues(t, 3, mark.At())
}
