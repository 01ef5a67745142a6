package pubsub_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/pubsub"
)

// batches returns a subscriber of a partition's first events.
func batches(t *testing.T, log *jetlog.Log, partition int) *pubsub.BatchSubscriber {
	t.Helper()
	tail := must.Get(log.Tail(t.Context(), partition, 0, jetlog.TailOptions{MaxBatch: 7, Decode: true}))(t)
	return pubsub.NewBatchSubscriber(tail)
}

func receive(t *testing.T, in <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case m, ok := <-in:
		require.True(t, ok, "the channel is closed")
		return m
	case <-time.After(hang.Limit):
		require.Fail(t, "no message")
		return nil
	}
}

func ended(t *testing.T, in <-chan *message.Message) {
	t.Helper()
	select {
	case _, open := <-in:
		require.False(t, open)
	case <-time.After(hang.Limit):
		require.Fail(t, "the channel is not closed")
	}
}

func TestNackedBatchComesAgainBeforeTheNext(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	const n = 40
	for i := range n {
		logtest.Add(t, log, "s", fmt.Sprint(i), "x")
	}
	sub := batches(t, log, 0)
	in := must.Get(sub.Subscribe(t.Context(), events.StreamName(0)))(t)
	seen := uint64(0)
	for round := 0; seen < n; round++ {
		m := receive(t, in)
		batch := pubsub.MessageBatch(m)
		require.LessOrEqual(t, len(batch), 7)
		require.Equal(t, seen+1, batch[0].Position.Seq)
		select {
		case <-in:
			require.Fail(t, "the next batch came before the verdict")
		default:
		}
		if round%2 == 0 {
			m.Nack()
			<-m.Context().Done()
			continue
		}
		m.Ack()
		<-m.Context().Done()
		seen = batch[len(batch)-1].Position.Seq
	}
	require.NoError(t, sub.Close())
	ended(t, in)
	require.NoError(t, sub.Close())
	must.Fail(sub.Subscribe(t.Context(), events.StreamName(0)))(t, jetlog.ErrClosed)
	require.Nil(t, pubsub.MessageBatch(message.NewMessage("", nil)))
}

func TestBatchSubscriptionEnds(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 2)
	logtest.Add(t, log, "s", "r", "x")
	stream := events.StreamName(log.Partition("s"))
	sub := batches(t, log, log.Partition("s"))
	ctx, cancel := context.WithCancel(t.Context())
	in := must.Get(sub.Subscribe(ctx, stream))(t)
	m := receive(t, in)
	cancel() // with a batch under way
	ended(t, in)
	<-m.Context().Done()
	require.NoError(t, sub.Close())
	never := batches(t, log, log.Partition("s"))
	require.NoError(t, never.Close(), "with a tail that nobody subscribed to")

	sub = batches(t, log, log.Partition("s"))
	in = must.Get(sub.Subscribe(t.Context(), stream))(t)
	receive(t, in)
	require.NoError(t, sub.Close())
	ended(t, in)
	must.Fail(log.Tail(t.Context(), log.Partition("s"), 9, jetlog.TailOptions{}))(t, jetlog.ErrStream)
	for _, topic := range []string{"", "s", "TURNS-2", "TURNS-00", "TURNS--1", "turns-0"} {
		_, err := subscriber(t, log, pubsub.SubscriberConfig{Group: "g"}).Subscribe(t.Context(), topic)
		require.ErrorContains(t, err, "no stream of the log")
	}
}

// closes counts its closings, without a lock of its own: the race detector sees two at once.
type closes struct{ n int }

func (c *closes) Next(ctx context.Context) ([]jetlog.Message, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (c *closes) Close() { c.n++ }

// A Router closes a subscriber in a goroutine of its own, while the runner that made it closes it too.
func TestTwoMayCloseABatchSubscriber(t *testing.T) {
	t.Parallel()
	var in closes
	sub := pubsub.NewBatchSubscriber(&in)
	must.Get(sub.Subscribe(t.Context(), ""))(t)
	var closing sync.WaitGroup
	for range 8 {
		closing.Go(func() { _ = sub.Close() })
	}
	closing.Wait()
	require.Equal(t, 1, in.n)
}
