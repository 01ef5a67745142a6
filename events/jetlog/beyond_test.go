package jetlog_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/disktest"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
)

// A position that the log does not hold yet may come from a client, or from a backup that was restored. To read there
// changes nothing: each write after it waits for an fsync of its own, and no reader takes the log for that long.
func TestReadsBeyondTheHeadLeaveTheGateShut(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	log, _, _ := logtest.Gated(t)
	disk := disktest.New()
	logtest.SetFsync(t, log, 0, disk.Fsync)
	first := logtest.Add(t, log, "s", "r1", "one")
	require.NoError(t, log.Durable(ctx, first))
	for _, beyond := range []uint64{first.Seq + 1, first.Seq + 1000, 1 << 40, math.MaxUint64} {
		head := logtest.Head(t, log, 0)
		at := events.Position{Partition: 0, Seq: max(beyond, head+1)}
		_, found := must.Two(log.At(ctx, at))(t)
		require.False(t, found)
		some := must.Get(log.Some(ctx, 0, []uint64{at.Seq, first.Seq}))(t)
		require.Len(t, some, 1)
		require.ErrorIs(t, log.Durable(ctx, at), jetlog.ErrStream)
		still := must.Get(log.Still(ctx, 0, first.Seq, at.Seq))(t)
		require.False(t, still, "nothing was erased there: the log has yet to come there")
		var mark jetlog.Watermark
		mark.Advance(head)
		brief := deadline(t, 300*time.Millisecond)
		require.ErrorIs(t, log.Reached(brief, &mark, at), context.DeadlineExceeded)
		require.Equal(t, head, mark.At())
		for _, err := range log.Session(ctx, "s", at.Seq-1, math.MaxUint64) {
			require.NoError(t, err)
		}
		for range 5 {
			before := disk.Syncs()
			ack := logtest.Add(t, log, "s", time.Now().String(), "two")
			require.NoError(t, log.Durable(ctx, ack))
			require.Greater(t, disk.Syncs(), before, "acknowledged without an fsync after a read at %s", at)
		}
	}
}
