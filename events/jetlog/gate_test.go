package jetlog_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/disktest"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/pubsub"
)

func TestNothingIsShownBeforeItsFsync(t *testing.T) {
	t.Parallel()
	log, _, _ := logtest.Gated(t)
	open, began := make(chan struct{}), make(chan struct{}, 100)
	logtest.SetFsync(t, log, 0, func(*os.File) error { began <- struct{}{}; <-open; return nil })
	gatedTail := openTail(t, log, 0, jetlog.TailOptions{})
	ungated := openTail(t, log, 0, jetlog.TailOptions{Ungated: true})
	sub := must.Get(pubsub.NewSubscriber(log, pubsub.SubscriberConfig{Group: "g"}))(t)
	defer func() { require.NoError(t, sub.Close()) }()
	emitted := must.Get(sub.Subscribe(t.Context(), events.StreamName(0)))(t)

	at := logtest.Add(t, log, "s", "r1", "one")
	require.Len(t, next(t, ungated), 1)
	var shown sync.WaitGroup
	var early atomic.Bool
	show := func(f func() error) {
		shown.Go(func() {
			assert.NoError(t, f())
			select {
			case <-open:
			default:
				early.Store(true)
			}
		})
	}
	show(func() error { return log.Durable(t.Context(), at) })
	show(func() error { _, err := log.Head(t.Context(), 0); return err })
	show(func() error { _, _, err := log.At(t.Context(), at); return err })
	show(func() error { _, err := log.Some(t.Context(), 0, []uint64{at.Seq}); return err })
	show(func() error { _, err := gatedTail.Next(t.Context()); return err })
	show(func() error { (<-emitted).Ack(); return nil })
	show(func() error {
		for _, err := range log.Session(t.Context(), "s", 0, math.MaxUint64) {
			return err
		}
		return errors.New("no event")
	})
	// One of them syncs for all; who waits for it may go away.
	<-began
	require.ErrorIs(t, log.Durable(deadline(t, 50*time.Millisecond), at), jetlog.ErrUnavailable)
	require.False(t, early.Load(), "shown before the fsync")
	close(open)
	shown.Wait()
}

func TestTailKeepsWhatACallerDidNotWaitFor(t *testing.T) {
	t.Parallel()
	log, _, _ := logtest.Gated(t)
	open, began := make(chan struct{}), make(chan struct{}, 100)
	logtest.SetFsync(t, log, 0, func(*os.File) error { began <- struct{}{}; <-open; return nil })
	tail := openTail(t, log, 0, jetlog.TailOptions{})
	at := logtest.Add(t, log, "s", "r1", "one")
	durable := make(chan error, 1)
	go func() { durable <- log.Durable(t.Context(), at) }()
	<-began
	require.Error(t, must.Err(tail.Next(deadline(t, 50*time.Millisecond))))
	close(open)
	got := next(t, tail)
	require.Len(t, got, 1)
	require.EqualValues(t, 1, got[0].Position.Seq)
	require.NoError(t, <-durable)
}

// TestFsyncsAreShared lets many writers come while the disk is at work for the first:
// what it does next serves all of them.
func TestFsyncsAreShared(t *testing.T) {
	t.Parallel()
	log, _, msgs := logtest.Gated(t)
	d, open := disktest.New(), make(chan struct{})
	logtest.SetFsync(t, log, 0, func(f *os.File) error { <-open; return d.Fsync(f) })
	const writers = 200
	var waiting, all sync.WaitGroup
	waiting.Add(writers)
	for w := range writers {
		all.Go(func() {
			ack, err := log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Fact("s", fmt.Sprint(w))}})
			waiting.Done()
			if assert.NoError(t, err) {
				assert.NoError(t, log.Durable(t.Context(), ack.Position))
			}
		})
	}
	waiting.Wait()
	close(open)
	all.Wait()
	d.Durable(t, msgs)
	t.Logf("%d events, %d fsyncs", writers, d.Syncs())
	require.Less(t, d.Syncs(), writers/2) // some may come late
}

func TestEveryBlockIsSynced(t *testing.T) {
	t.Parallel()
	log, _, msgs := logtest.Gated(t)
	d := disktest.New()
	logtest.SetFsync(t, log, 0, d.Fsync)
	text := strings.Repeat("x", 30_000)
	var at events.Position
	for i := range 600 { // 18 MB: three blocks
		at = logtest.Add(t, log, "s", fmt.Sprint(i), text)
		if i%97 == 0 {
			require.NoError(t, log.Durable(t.Context(), at))
			d.Durable(t, msgs)
		}
	}
	// From here, two blocks on: what waits once is synced whole.
	require.NoError(t, log.Durable(t.Context(), at))
	require.GreaterOrEqual(t, d.Durable(t, msgs), 3)
}

func TestRewrittenBlockIsSyncedWithItsFolder(t *testing.T) {
	t.Parallel()
	log, stream, msgs := logtest.Gated(t)
	d := disktest.New()
	logtest.SetFsync(t, log, 0, d.Fsync)
	for i := range 5 {
		at := logtest.Add(t, log, "s", fmt.Sprint(i), "text")
		require.NoError(t, log.Durable(t.Context(), at))
	}
	for i := range uint64(4) {
		require.NoError(t, stream.SecureDeleteMsg(t.Context(), i+1))
		at := logtest.Add(t, log, "s", fmt.Sprint("after", i), "text")
		require.NoError(t, log.Durable(t.Context(), at))
		d.Durable(t, msgs)
	}
	require.NoError(t, stream.Purge(t.Context()))
	at := logtest.Add(t, log, "s", "last", "text")
	require.NoError(t, log.Durable(t.Context(), at))
	d.Durable(t, msgs)
}

func TestFailedFsyncIsFinal(t *testing.T) {
	t.Parallel()
	log, _, _ := logtest.Gated(t)
	before := logtest.Add(t, log, "s", "r0", "zero")
	require.NoError(t, log.Durable(t.Context(), before))
	tail := openTail(t, log, before.Seq, jetlog.TailOptions{})
	logtest.SetFsync(t, log, 0, func(*os.File) error { return syscall.EIO })
	at := logtest.Add(t, log, "s", "r1", "one")
	require.ErrorIs(t, log.Durable(t.Context(), at), syscall.EIO)
	logtest.SetFsync(t, log, 0, (*os.File).Sync)
	// The kernel reports a lost write once. A second fsync that works proves nothing.
	for range 3 {
		err := log.Durable(t.Context(), at)
		require.ErrorIs(t, err, jetlog.ErrNoWrites)
		require.ErrorIs(t, err, syscall.EIO)
	}
	must.Fail(log.Head(t.Context(), 0))(t, jetlog.ErrUnavailable)
	must.Fail(tail.Next(t.Context()))(t, jetlog.ErrUnavailable)
	require.NoError(t, log.Durable(t.Context(), before), "what is durable stays so")
}

// TestALogNeedsTheLayoutItKnows: a log does not open over a server whose files its gate does not find.
func TestALogNeedsTheLayoutItKnows(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	_, err := jetlog.Open(t.Context(), natstest.Connect(t, s), jetlog.Config{GateDir: t.TempDir()})
	require.ErrorIs(t, err, jetlog.ErrLayout)
}
