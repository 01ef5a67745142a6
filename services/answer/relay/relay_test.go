package relay_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/answer"
	"github.com/turnledger/turnledger/services/answer/relay"
)

const key = "a key of 32 characters and a few more"

// offered is an answer that a process makes.
type offered struct {
	frames  chan []byte
	stopped chan struct{}
	serving sync.WaitGroup
}

func offer(t *testing.T, r *relay.Relay, step uuid.UUID) (o *offered, leave func()) {
	t.Helper()
	o = &offered{frames: make(chan []byte, 100), stopped: make(chan struct{}, 100)}
	leave, err := r.Offer(t.Context(), step, answer.Offer{
		Serve: func(ctx context.Context, send func([]byte)) {
			for {
				select {
				case f, more := <-o.frames:
					if !more {
						return
					}
					send(f)
				case <-ctx.Done():
					return
				}
			}
		},
		Stop: func() { o.stopped <- struct{}{} }, Go: o.serving.Go,
	})
	require.NoError(t, err)
	return o, leave
}

// A stop that was heard ends no later attempt at the same step.
func TestAStopIsOfOneAttempt(t *testing.T) {
	t.Parallel()
	server := natstest.Server(t)
	maker, watcher := natstest.Connect(t, server), natstest.Connect(t, server)
	step := uuid.New()
	var heard []*nats.Msg
	all, err := watcher.SubscribeSync("turnledger.answer.*")
	require.NoError(t, err)
	first, leave := offer(t, relay.New(maker, key), step)
	require.NoError(t, maker.Flush())
	stopped, err := relay.New(watcher, key).Stop(t.Context(), step)
	require.NoError(t, err)
	require.True(t, stopped)
	require.Len(t, first.stopped, 1)
	leave()
	for range 2 {
		m, err := all.NextMsg(nats.DefaultTimeout)
		require.NoError(t, err)
		heard = append(heard, m)
	}
	second, leave := offer(t, relay.New(maker, key), step)
	defer leave()
	require.NoError(t, maker.Flush())
	for _, m := range heard {
		require.NoError(t, watcher.PublishRequest(m.Subject, m.Reply, m.Data))
	}
	there, err := relay.New(watcher, key).Offered(t.Context(), step) // what was sent before is handled by now
	require.NoError(t, err)
	require.True(t, there)
	require.Empty(t, second.stopped)
}

// A frame of any length comes as it was sent; a watcher that leaves is served no more.
func TestFramesComeAsTheyWereSent(t *testing.T) {
	t.Parallel()
	server := natstest.Server(t)
	maker, watcher := natstest.Connect(t, server), natstest.Connect(t, server)
	step := uuid.New()
	o, leave := offer(t, relay.New(maker, key), step)
	defer leave()
	require.NoError(t, maker.Flush())
	var want, got [][]byte
	for _, n := range []int{0, 1, 256 << 10, 256<<10 + 1, 3 << 20} {
		f := make([]byte, n)
		_, _ = rand.Read(f)
		want = append(want, f)
		o.frames <- f
	}
	close(o.frames)
	require.NoError(t, relay.New(watcher, key).Attach(t.Context(), step, func(f []byte) {
		got = append(got, bytes.Clone(f))
	}))
	require.Len(t, got, len(want))
	for n := range want {
		require.True(t, bytes.Equal(want[n], got[n]), n)
	}
	o.serving.Wait()

	other := uuid.New()
	o, leave = offer(t, relay.New(maker, key), other)
	defer leave()
	require.NoError(t, maker.Flush())
	ctx, end := context.WithCancel(t.Context())
	o.frames <- []byte("x")
	require.ErrorIs(t, relay.New(watcher, key).Attach(ctx, other, func([]byte) { end() }), context.Canceled)
	o.serving.Wait()
	err := relay.New(watcher, key).Attach(t.Context(), uuid.New(), func([]byte) {})
	require.ErrorIs(t, err, services.ErrNotRunning)
}

// Who asks for an answer in the moment in which it begins finds it, also where a stranger who listens to everything
// keeps NATS from saying that nobody replies.
func TestAnAnswerThatBeginsIsFound(t *testing.T) {
	t.Parallel()
	server := natstest.Server(t)
	maker, watcher := natstest.Connect(t, server), natstest.Connect(t, server)
	asked := make(chan struct{}, 100)
	_, err := maker.Subscribe("turnledger.answer.*", func(*nats.Msg) { asked <- struct{}{} })
	require.NoError(t, err)
	require.NoError(t, maker.Flush())
	step, found := uuid.New(), make(chan bool)
	go func() {
		there, _ := relay.New(watcher, key).Offered(t.Context(), step)
		found <- there
	}()
	<-asked
	_, leave := offer(t, relay.New(maker, key), step)
	defer leave()
	require.True(t, <-found)
}

// A watcher whose process was killed says nothing more, and is served no more.
func TestAWatcherThatIsLostIsServedNoMore(t *testing.T) {
	t.Parallel()
	server := natstest.Server(t)
	maker, watcher := natstest.Connect(t, server), natstest.Connect(t, server)
	step := uuid.New()
	o, leave := offer(t, relay.New(maker, key), step)
	defer leave()
	require.NoError(t, maker.Flush())
	o.frames <- []byte("x")
	heard := make(chan struct{}, 1)
	go func() { _ = relay.New(watcher, key).Attach(t.Context(), step, func([]byte) { heard <- struct{}{} }) }()
	<-heard
	watcher.Close()
	o.serving.Wait()
}
