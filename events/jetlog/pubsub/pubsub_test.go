package pubsub_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/pubsub"
)

// TestWatermillSuite runs Watermill's own suite on the public adapter. Its topics are
// session ids there, and its messages state no fact.
func TestWatermillSuite(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 2)
	group := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
		sub := must.Get(pubsub.NewSubscriber(log, pubsub.SubscriberConfig{Group: group, Sessions: true,
			AckWait: 5 * time.Second, NackPause: time.Millisecond}))(t)
		return pubsub.NewPublisher(log, pubsub.PublisherConfig{Foreign: true}), sub
	}
	tests.TestPubSub(t, tests.Features{
		ConsumerGroups:  true,
		GuaranteedOrder: true,
		Persistent:      true,
	}, func(t *testing.T) (message.Publisher, message.Subscriber) { return group(t, "test") }, group)
}

func subscriber(t *testing.T, log *jetlog.Log, cfg pubsub.SubscriberConfig) *pubsub.Subscriber {
	t.Helper()
	sub := must.Get(pubsub.NewSubscriber(log, cfg))(t)
	t.Cleanup(func() { require.NoError(t, sub.Close()) })
	return sub
}

func subscribe(t *testing.T, sub *pubsub.Subscriber, topic string) <-chan *message.Message {
	t.Helper()
	return must.Get(sub.Subscribe(t.Context(), topic))(t)
}

// pass returns the next n messages and acks them.
func pass(t *testing.T, in <-chan *message.Message, n int) (out []*message.Message) {
	t.Helper()
	for range n {
		m := receive(t, in)
		require.True(t, m.Ack())
		out = append(out, m)
	}
	return out
}

func factMessage(t *testing.T, f events.Fact) *message.Message {
	t.Helper()
	return must.Get(pubsub.NewMessage(f))(t)
}

func TestPublishedEventIsLikeAnAppendedOne(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 2)
	pub := pubsub.NewPublisher(log, pubsub.PublisherConfig{Source: "/pipelines/a"})
	one, two := logtest.Fact("s", "r1"), logtest.Fact("s", "r2")
	messages := []*message.Message{factMessage(t, one), factMessage(t, two)}
	// What a pipeline in another language may send: no more than needed, in any case.
	messages[1].Metadata = message.Metadata{"CE-Type": two.Type(), "correlation_id": "c"}
	require.NoError(t, pub.Publish("s", messages...))
	require.NoError(t, pub.Publish("s", messages...), "the same ids again are no new events")
	require.True(t, must.Get(log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{one}}))(t).Duplicate)
	got := logtest.Read(t, log, "s")
	require.Len(t, got, 2)
	for i, f := range []events.Fact{one, two} {
		require.Equal(t, f, got[i].Fact)
		require.Equal(t, f.EventID(), got[i].ID)
		require.Empty(t, got[i].Problem)
	}
	require.Equal(t, events.Source, got[0].Source)
	require.Equal(t, "/pipelines/a", got[1].Source)
	must.Get(time.Parse(time.RFC3339Nano, got[1].SentAt))(t)

	in := subscribe(t, subscriber(t, log, pubsub.SubscriberConfig{Group: "g"}), events.StreamName(log.Partition("s")))
	for i, m := range pass(t, in, 2) {
		require.Equal(t, got[i].ID, m.UUID)
		require.Equal(t, got[i].Body, []byte(m.Payload))
		require.Equal(t, got[i].Type, m.Metadata.Get("ce-type"))
		require.Equal(t, got[i].Position.String(), m.Metadata.Get(pubsub.MetadataPosition))
		require.Equal(t, got[i].Time.Format(time.RFC3339Nano), m.Metadata.Get(pubsub.MetadataRecordedAt))
		require.Equal(t, got[i], pubsub.MessageBatch(m)[0].Recorded())
		// What was read can be published on as it is.
		require.NoError(t, pub.Publish("s", m.Copy()))
	}
	require.Len(t, logtest.Read(t, log, "s"), 2)
	require.NoError(t, pub.Close())
	require.ErrorIs(t, pub.Publish("s", messages...), jetlog.ErrClosed)
}

func TestMessageThatIsNoEventIsNotPublished(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	pub := pubsub.NewPublisher(log, pubsub.PublisherConfig{})
	with := func(change func(*message.Message)) *message.Message {
		m := factMessage(t, turntest.Started("s", "r", "secret"))
		change(m)
		return m
	}
	for name, c := range map[string]struct {
		topic string
		m     *message.Message
		is    error
	}{
		"another session": {"other", with(func(*message.Message) {}), events.ErrMalformed},
		"no session":      {"", with(func(*message.Message) {}), events.ErrID},
		"no body":         {"s", with(func(m *message.Message) { m.Payload = nil }), events.ErrMalformed},
		"no type":         {"s", with(func(m *message.Message) { delete(m.Metadata, "ce-type") }), events.ErrMalformed},
		"another id":      {"s", with(func(m *message.Message) { m.UUID = "x" }), events.ErrMalformed},
		"no id": {"s", with(func(m *message.Message) {
			m.UUID = ""
			delete(m.Metadata, "ce-id")
		}), events.ErrMalformed},
		"bad key":   {"s", with(func(m *message.Message) { m.Metadata["a b"] = "secret" }), nil},
		"bad value": {"s", with(func(m *message.Message) { m.Metadata["a"] = "secret\r\nNats-Rollup: all" }), nil},
		"too large": {"s", with(func(m *message.Message) { m.Metadata["a"] = strings.Repeat("x", 70_000) }),
			jetlog.ErrTooLarge},
	} {
		good := factMessage(t, logtest.Fact(c.topic, "good"))
		err := pub.Publish(c.topic, good, c.m)
		require.Error(t, err, name)
		if c.is != nil {
			require.ErrorIs(t, err, c.is, name)
		}
		require.NotContains(t, err.Error(), "secret", name)
	}
	require.NoError(t, pub.Publish("s"))
	require.Zero(t, must.Get(log.Head(t.Context(), 0))(t).Seq, "nothing goes in where one can't")
}

func TestServersHeadersAreNotAPublishersToSet(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	pub := pubsub.NewPublisher(log, pubsub.PublisherConfig{})
	logtest.Add(t, log, "s", "r0", "x")
	m := factMessage(t, logtest.Fact("s", "r1"))
	for _, name := range []string{"Nats-Rollup", "nats-rollup", "Nats-TTL", "Nats-Expected-Last-Sequence",
		"NATS-MSG-ID", pubsub.MetadataPosition} {
		m.Metadata[name] = "sub"
	}
	require.NoError(t, pub.Publish("s", m))
	require.Len(t, logtest.Read(t, log, "s"), 2)
	in := subscribe(t, subscriber(t, log, pubsub.SubscriberConfig{Group: "g"}), events.StreamName(0))
	for k := range pass(t, in, 2)[1].Metadata {
		require.False(t, strings.HasPrefix(strings.ToLower(k), "nats-"), k)
	}
}

func TestPublishReturnsWhenOnDisk(t *testing.T) {
	t.Parallel()
	log, _, _ := logtest.Gated(t)
	open := make(chan struct{})
	began := make(chan struct{}, 100)
	logtest.SetFsync(t, log, 0, func(*os.File) error { began <- struct{}{}; <-open; return nil })
	published := make(chan error, 1)
	go func() {
		m, err := pubsub.NewMessage(logtest.Fact("s", "r"))
		if err == nil {
			err = pubsub.NewPublisher(log, pubsub.PublisherConfig{}).Publish("s", m)
		}
		published <- err
	}()
	<-began
	select {
	case err := <-published:
		require.Fail(t, "published before the fsync", err)
	default:
	}
	close(open)
	require.NoError(t, <-published)
}

// TestForeignMessagesPassTheSubscriber too: it is one more reader of what anybody may
// publish.
func TestForeignMessagesPassTheSubscriber(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	nc, log := natstest.Connect(t, s), natstest.LogOn(t, s, 1)
	n := 0
	for _, m := range logtest.ForeignMessages() {
		m.Subject = events.SessionSubject("s")
		must.Get(nc.RequestMsg(m, hang.Limit))(t)
		n++
	}
	last := logtest.Add(t, log, "s", "r", "x")
	in := subscribe(t, subscriber(t, log, pubsub.SubscriberConfig{Group: "g"}), events.StreamName(0))
	for i, m := range pass(t, in, n+1) {
		require.EqualValues(t, i+1, pubsub.MessageBatch(m)[0].Position.Seq)
		require.NotEmpty(t, m.UUID)
	}
	require.EqualValues(t, n+1, last.Seq)
}

// TestGroupSharesATopicInOrder: one message at a time over all members, each again
// until it is acked, and nothing forgotten when members come and go.
func TestGroupSharesATopicInOrder(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	const n = 120
	for i := range n {
		logtest.Add(t, log, "s", fmt.Sprint(i), "x")
	}
	cfg := pubsub.SubscriberConfig{Group: "g", AckWait: 5 * time.Second, NackPause: time.Millisecond}
	var mu sync.Mutex
	var order []uint64
	underWay := 0
	handle := func(m *message.Message, nack bool) {
		mu.Lock()
		underWay++
		order = append(order, pubsub.MessageBatch(m)[0].Position.Seq)
		if underWay > 1 {
			t.Error("two at a time")
		}
		mu.Unlock()
		runtime.Gosched()
		mu.Lock()
		underWay--
		mu.Unlock()
		if nack {
			m.Nack()
			return
		}
		m.Ack()
	}
	var members sync.WaitGroup
	for k := range 4 {
		members.Go(func() {
			for life := 0; ; life++ {
				sub, err := pubsub.NewSubscriber(log, cfg)
				if err != nil {
					t.Error(err)
					return
				}
				in, err := sub.Subscribe(t.Context(), events.StreamName(0))
				if err != nil {
					t.Error(err)
					return
				}
				for i := range 5 {
					select {
					case m := <-in:
						handle(m, (life+i+k)%4 == 0)
					case <-time.After(500 * time.Millisecond):
						_ = sub.Close()
						return
					}
				}
				_ = sub.Close()
			}
		})
	}
	members.Wait()
	want := uint64(1)
	for i, seq := range order {
		switch {
		case seq == want:
			want++
		case i > 0 && seq == order[i-1]: // nacked, or acked by one who left before it was heard
		default:
			require.Fail(t, "out of order", "%d after %v", seq, order[max(0, i-3):i])
		}
	}
	require.EqualValues(t, n+1, want)
	other := subscribe(t, subscriber(t, log, pubsub.SubscriberConfig{Group: "other"}), events.StreamName(0))
	pass(t, other, n)
}

func TestSlowHandlerKeepsItsMessage(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	for i := range 2 {
		logtest.Add(t, log, "s", fmt.Sprint(i), "x")
	}
	cfg := pubsub.SubscriberConfig{Group: "g", AckWait: 2 * time.Second}
	slow, other := subscribe(t, subscriber(t, log, cfg), events.StreamName(0)), subscribe(t, subscriber(t, log, cfg),
		events.StreamName(0))
	var m *message.Message
	select {
	case m = <-slow:
	case m = <-other:
		slow, other = other, slow
	case <-time.After(hang.Limit):
		require.Fail(t, "no message")
	}
	select {
	case <-other:
		require.Fail(t, "given to another while it is worked on")
	case <-time.After(6 * time.Second): // three times as long as one that died keeps it
	}
	require.True(t, m.Ack())
	select {
	case m = <-slow:
	case m = <-other:
	case <-time.After(hang.Limit):
		require.Fail(t, "no next message")
	}
	require.EqualValues(t, 2, pubsub.MessageBatch(m)[0].Position.Seq)
}

func TestSubscriberGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	r := logtest.NewRestarting(t)
	log := r.Log()
	in := subscribe(t, subscriber(t, log, pubsub.SubscriberConfig{Group: "g", Sessions: true, AckWait: time.Second}),
		"s")
	n := 0
	for range 3 {
		for range 10 {
			require.NoError(t, logtest.Persist(t.Context(), log, logtest.Fact("s", fmt.Sprint(n))))
			n++
		}
		for _, m := range pass(t, in, 9) {
			require.NotEmpty(t, m.UUID)
		}
		r.Restart()
	}
	left := map[string]bool{}
	for len(left) < 3 { // acks that the restart swallowed bring a message again
		m := receive(t, in)
		m.Ack()
		if pubsub.MessageBatch(m)[0].Position.Seq > uint64(n-3) {
			left[m.UUID] = true
		}
	}
}

func TestSubscriberConfigIsHeldAgainstItsBounds(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	for _, group := range []string{"", "a.b", "a b", "*", strings.Repeat("x", 65)} {
		require.ErrorContains(t, must.Err(pubsub.NewSubscriber(log, pubsub.SubscriberConfig{Group: group})), "group")
	}
	_, err := subscriber(t, log, pubsub.SubscriberConfig{Group: "g"}).Subscribe(t.Context(), "s")
	require.ErrorContains(t, err, "no stream")
	_, err = subscriber(t, log, pubsub.SubscriberConfig{Group: "g", Sessions: true}).Subscribe(t.Context(), "..")
	require.ErrorIs(t, err, events.ErrID)
	// Sessions with ids that are no NATS tokens.
	for _, session := range []string{"a b", "TURNS-0", ">", strings.Repeat("ü", 128)} {
		require.NoError(t, pubsub.NewPublisher(log, pubsub.PublisherConfig{}).Publish(session, factMessage(t,
			logtest.Fact(session, "r"))))
		in := subscribe(t, subscriber(t, log, pubsub.SubscriberConfig{Group: "g", Sessions: true}), session)
		pass(t, in, 1)
	}
}

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

func TestMain(m *testing.M) {
	// nats-server 2.15.2 leaves these behind when it drops a half-written atomic batch
	// at its recovery (jetstream.go: SKIP without stopping the staged store).
	leaks.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*msgBlock).flushLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"))
}
