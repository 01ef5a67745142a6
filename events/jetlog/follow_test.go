package jetlog_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events/jetlog"
)

// TestFollowGoesOnWhereItWas has the beginning, and then a reader, fail once: the reader gets the same events again,
// and none twice after it has taken them.
func TestFollowGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	for _, request := range []string{"before", "r1", "r2", "r3"} {
		logtest.Add(t, log, "s", request, "text")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mark jetlog.Watermark
	var taken []uint64
	var warned []error
	begun, opened, failed := 0, 0, false
	fault := errors.New("the reader can't")
	require.NoError(t, jetlog.Follow(ctx, log, jetlog.Following{
		Options: jetlog.TailOptions{MaxBatch: 1}, Watermark: &mark,
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
			if seq == 3 && !failed {
				failed = true
				return fault
			}
			if taken = append(taken, seq); seq == 4 {
				cancel()
			}
			return nil
		},
		Warn: func(err error) { warned = append(warned, err) },
	}), "ctx has ended")
	require.Equal(t, []uint64{2, 3, 4}, taken)
	require.Equal(t, []error{fault, fault}, warned)
	require.Equal(t, [2]int{2, 1}, [2]int{begun, opened})
}

// TestFollowEndsWithItsStream: a stream that ends before the mark is not the one that was followed.
func TestFollowEndsWithItsStream(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	var mark jetlog.Watermark
	mark.Advance(5)
	require.ErrorIs(t, jetlog.Follow(t.Context(), log, jetlog.Following{
		Watermark: &mark,
		Read:      func(context.Context, []jetlog.Message) error { return nil },
		Warn:      func(err error) { t.Error("it goes on", err) },
	}), jetlog.ErrStream)
}
