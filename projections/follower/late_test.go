package follower_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections/follower"
)

// What a follower read before somebody subscribes, and what was erased since, is still on its way to the others while
// the disk is slow. The new subscriber is not given it.
func TestALateSubscriberIsNotGivenWhatWasErasedBefore(t *testing.T) {
	t.Parallel()
	server := natstest.Server(t)
	log := &slowDisk{Log: natstest.LogOn(t, server, 1)}
	stream := streamOf(t, natstest.Connect(t, server))
	f := follower.New(log, follower.Config{Rules: rules})
	natstest.Run(t, f.Run)
	defer joinAll(t, f, log.Log)()
	head := newest(t, log.Log)
	log.slow.Store(true)
	writeTurns(t, log.Log, "erased", 1, 10)
	erased := newest(t, log.Log)
	require.NoError(t, f.Folded(0).Wait(t.Context(), erased))
	require.NoError(t, stream.SecureDeleteMsg(t.Context(), erased))

	read := readers(t, f, head)
	getNothing(t, read)
	writeTurns(t, log.Log, "kept", 1, 10)
	log.slow.Store(false)
	getOne(t, read, newest(t, log.Log))
}

// Nothing is judged when the last who asked for verdicts has left, and nothing is read when nobody wants the events.
func TestNothingIsDoneForNobody(t *testing.T) {
	t.Parallel()
	server := natstest.Server(t)
	log := natstest.LogOn(t, server, 1)
	stream := streamOf(t, natstest.Connect(t, server))
	f := follower.New(log, follower.Config{Rules: rules})
	natstest.Run(t, f.Run)
	raw, judged := f.Events(0, 0, jetlog.TailOptions{}), f.Judged(0, 0, 100)
	readers := func(n int) func() bool {
		rounds := 0
		return func() bool {
			rounds++ // after the first, the subscriber's own judge is that of all
			writeTurns(t, log, time.Now().String(), 1, 10)
			head := newest(t, log)
			for at := uint64(0); at < head; {
				batch := must.Get(raw.Next(t.Context()))(t)
				at = batch[len(batch)-1].Position.Seq
			}
			for at := uint64(0); judged != nil && at < head; {
				batch := must.Get(judged.Next(t.Context()))(t)
				at = batch[len(batch)-1].Position.Seq
			}
			return rounds > 1 && f.Joined() == n
		}
	}
	hang.Until(t, readers(2))
	judged.Close()
	judged = nil
	hang.Until(t, readers(1))
	raw.Close()
	hang.Until(t, func() bool {
		return must.Get(stream.Info(t.Context()))(t).State.Consumers == 0
	})
}

func streamOf(t *testing.T, nc *nats.Conn) jetstream.Stream {
	t.Helper()
	js := must.Get(jetstream.New(nc))(t)
	return must.Get(js.Stream(t.Context(), events.StreamName(0)))(t)
}

func newest(t *testing.T, log *jetlog.Log) uint64 {
	t.Helper()
	return must.Get(log.Head(t.Context(), 0))(t).Seq
}

// joinAll has two subscribers of each partition join, one for events and one for verdicts, and take nothing more.
func joinAll(t *testing.T, f *follower.Follower, log *jetlog.Log) (leave func()) {
	t.Helper()
	writeTurns(t, log, "first", 8*log.Partitions(), 10) // a judge that begins later holds no filter of sessions
	var closing []func()
	var joining sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for k := range log.Partitions() {
		head := must.Get(log.Head(ctx, k))(t)
		raw, judged := f.Events(k, head.Seq, jetlog.TailOptions{MaxBatch: 1}), f.Judged(k, head.Seq, 1)
		closing = append(closing, raw.Close, judged.Close)
		joining.Go(func() {
			for ctx.Err() == nil {
				_, _ = raw.Next(ctx)
			}
		})
		joining.Go(func() {
			for ctx.Err() == nil {
				_, _ = judged.Next(ctx)
			}
		})
	}
	hang.Until(t, func() bool {
		writeTurns(t, log, fmt.Sprint("join", time.Now().UnixNano()), log.Partitions(), 10)
		return f.Joined() == 2*log.Partitions()
	})
	stop()
	joining.Wait()
	return func() {
		for _, one := range closing {
			one()
		}
	}
}

// A subscriber that asks for verdicts where nobody follows the log yet, or any more, reads the log by itself: its judge
// would be that of all, but nobody would take it.
func TestASubscriberNeedsNobodyWhoFollows(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	f := follower.New(log, follower.Config{Rules: rules, Pause: time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), hang.Limit)
	defer cancel()
	for range 2 {
		writeTurns(t, log, time.Now().String(), 1, 5)
		in := f.Judged(0, 0, 1)
		for at, head := uint64(0), newest(t, log); at < head; at++ {
			require.Equal(t, at+1, must.Get(in.Next(ctx))(t)[0].Position.Seq)
		}
		in.Close()
		over, end := context.WithCancel(ctx)
		end()
		require.NoError(t, f.Run(over))
	}
}

// slowToOpen is a log whose tails take their time to open, as on a busy cluster.
type slowToOpen struct {
	*jetlog.Log
	takes time.Duration
}

func (l *slowToOpen) Tail(
	ctx context.Context, partition int, after uint64, opts jetlog.TailOptions,
) (*jetlog.Tail, error) {
	select {
	case <-time.After(l.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return l.Log.Tail(ctx, partition, after, opts)
}

// A reader that is behind the ring reads by itself however long a tail takes to open: it looks at the ring again while
// it waits for events, not while it opens one.
func TestATailMayTakeLongToOpen(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	writeTurns(t, log, "behind", 1, 5)
	f := follower.New(&slowToOpen{log, follower.StillFor + 50*time.Millisecond}, follower.Config{Rules: rules})
	natstest.Run(t, f.Run)
	ctx, cancel := context.WithTimeout(t.Context(), hang.Limit)
	defer cancel()
	in := f.Events(0, 0, jetlog.TailOptions{})
	defer in.Close()
	require.EqualValues(t, 1, must.Get(in.Next(ctx))(t)[0].Position.Seq)
}
