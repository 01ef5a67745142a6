package follower_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/pause"
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
	hang.Until(t, func() bool { return must.Get(stream.Info(t.Context()))(t).State.Consumers == 0 })
}

func streamOf(t *testing.T, nc *nats.Conn) jetstream.Stream {
	t.Helper()
	return must.Get(must.Get(jetstream.New(nc))(t).Stream(t.Context(), events.StreamName(0)))(t)
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

// A checkpoint that the log has not reached is of another stream, such as one before a restore. Who comes with it is
// told at once. Waiting until the log is there would leave out all that came up to it.
func TestACheckpointThatTheLogHasNotReachedIsOfAnotherStream(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	writeTurns(t, log, "s", 1, 10)
	f := follower.New(log, follower.Config{Rules: rules})
	f.Decide(func(*jetlog.Message) {})
	natstest.Run(t, f.Run)
	<-f.Started(0)
	ctx, stop := context.WithTimeout(t.Context(), hang.Limit)
	defer stop()
	for name, next := range readers(t, f, newest(t, log)+10) {
		must.Fail(next(ctx))(t, jetlog.ErrStream, name)
	}
}

func writeTurns(t *testing.T, log *jetlog.Log, name string, turns, length int) {
	t.Helper()
	text := events.Question{QuestionNeutral: strings.Repeat("q", length)}
	for n := range turns {
		id := fmt.Sprint(name, n)
		f := &events.TurnStarted{TurnID: events.TurnID(id, "r"), SessionID: id, RequestID: "r", Question: text}
		must.Get(log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{f}}))(t)
	}
}

// slowDisk is a log where, while slow is true, no event becomes durable.
type slowDisk struct {
	*jetlog.Log
	slow atomic.Bool
}

func (l *slowDisk) Durable(ctx context.Context, at events.Position) error {
	for l.slow.Load() {
		if !pause.For(ctx, time.Millisecond) {
			return ctx.Err()
		}
	}
	return l.Log.Durable(ctx, at)
}

// A reader whose own tails break again and again is given each event once, and none is left out where a tail broke.
func TestAReaderGoesOnWhereItsTailBroke(t *testing.T) {
	t.Parallel()
	server := natstest.Server(t)
	log := &shaky{Log: natstest.LogOn(t, server, 1)}
	log.well.Store(true)
	writes := &scribe{
		t: t, log: log.Log, nc: natstest.Connect(t, server), rng: rand.New(rand.NewPCG(1, 2)), sessions: 12,
	}
	writes.write(400)
	want := privately(t, log.Log, 0)
	for _, raw := range []bool{true, false} {
		breaks := 0
		// A tail that has read all before it breaks has nothing left to break at: then another one reads it all.
		for range 50 {
			// One subscriber at a time, so that the newest tail is its own.
			s := &subscriber{name: fmt.Sprint("raw=", raw), raw: raw, rng: rand.New(rand.NewPCG(3, 4))}
			next, stop := s.subscribe(follower.Alone(log, follower.Config{Rules: rules}), 0)
			for s.at() < want[len(want)-1].Position.Seq {
				batch, err := next(t.Context())
				if err != nil {
					require.ErrorIs(t, err, jetlog.ErrClosed)
					breaks++
				}
				s.take(batch)
				log.breakOne(func(n int) int { return n - 1 }) // the newest
			}
			stop()
			s.isGiven(t, want)
			if breaks > 1 {
				break
			}
		}
		require.Greater(t, breaks, 1, "raw=%v", raw)
	}
}

// Nobody is given an event that is not durable yet: neither readers of events nor those of verdicts.
func TestNobodyIsGivenWhatTheDiskDoesNotHave(t *testing.T) {
	t.Parallel()
	log := &slowDisk{Log: natstest.Log(t, 1)}
	f := follower.New(log, follower.Config{Rules: rules})
	natstest.Run(t, f.Run)
	read := readers(t, f, 0)
	// Both join: what they get then comes from the rings. A reader of its own waits for the log's own gate.
	hang.Until(t, func() bool {
		writeTurns(t, log.Log, fmt.Sprint("join", time.Now().UnixNano()), 1, 10)
		for name, next := range read {
			for head, at := newest(t, log.Log), uint64(0); at < head; {
				seqs, err := next(t.Context())
				require.NoError(t, err, name)
				at = seqs[len(seqs)-1]
			}
		}
		return f.Joined() == 2
	})
	log.slow.Store(true)
	writeTurns(t, log.Log, "slow", 1, 10)
	head := newest(t, log.Log)
	require.NoError(t, f.Folded(0).Wait(t.Context(), head))
	getNothing(t, read)
	log.slow.Store(false)
	getOne(t, read, head)
}

// The beginning, and then the reader, fail once: the reader gets the same events again, and none twice after it has
// taken them. The mark stands at the beginning, and at each event that was read.
func TestAReadBeginsWhereItIsToldAndGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	f := follower.Alone(log, follower.Config{Rules: rules})
	for _, request := range []string{"before", "r1", "r2", "r3"} {
		logtest.Add(t, log, "s", request, "text")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mark jetlog.Watermark
	var taken []uint64
	var warned []error
	begun, failed := 0, false
	fault := errors.New("the reader can't")
	require.NoError(t, f.Read(ctx, follower.Following{
		Options: jetlog.TailOptions{MaxBatch: 1}, Watermark: &mark, Pause: time.Millisecond,
		Begin: func(context.Context) (uint64, error) {
			if begun++; begun == 1 {
				return 0, fault
			}
			return 1, nil
		},
		Read: func(_ context.Context, batch []jetlog.Message) error {
			seq := batch[0].Position.Seq
			require.Equal(t, seq-1, mark.At())
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
	require.Equal(t, 2, begun)
	require.EqualValues(t, 4, mark.At())
}

// A stream that ends before the mark is not the one that was read.
func TestAReadEndsWithItsStream(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	var mark jetlog.Watermark
	mark.Advance(5)
	require.ErrorIs(t, follower.Alone(log, follower.Config{Rules: rules}).Read(t.Context(), follower.Following{
		Watermark: &mark,
		Read:      func(context.Context, []jetlog.Message) error { return nil },
		Warn:      func(err error) { t.Error("it goes on", err) },
	}), jetlog.ErrStream)
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
