package jetlog_test

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/jetlog/pubsub"
)

// benchText makes an event of about half a kilobyte.
var benchText = strings.Repeat("text of a turn. ", 10)

// BenchmarkAppend is the durable append by who makes it durable and by writers; none
// is the floor without a disk.
func BenchmarkAppend(b *testing.B) {
	for _, sync := range []embedded.Sync{embedded.Group, embedded.Always, embedded.None} {
		for _, writers := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%s/writers=%d", sync, writers), func(b *testing.B) {
				log := natstest.LogOn(b, natstest.ServerIn(b, b.TempDir(), sync), 1)
				b.ResetTimer()
				appendAll(b, log, writers, b.N)
			})
		}
	}
}

// appendAll appends n events durably with some writers at once.
func appendAll(b *testing.B, log *jetlog.Log, writers, n int) {
	b.Helper()
	share(b, writers, n, func(k int64) error {
		start := turntest.Started(fmt.Sprint("s", k%1000), fmt.Sprint(k), benchText)
		ack, err := log.Append(b.Context(), jetlog.Append{Facts: []events.Fact{start}})
		if err == nil {
			err = log.Durable(b.Context(), ack.Position)
		}
		return err
	})
}

// share runs f n times over some goroutines.
func share(b *testing.B, over, n int, f func(k int64) error) {
	b.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	for range over {
		all.Go(func() {
			for k := next.Add(1); k <= int64(n); k = next.Add(1) {
				if !assert.NoError(b, f(k)) {
					return
				}
			}
		})
	}
	all.Wait()
}

// BenchmarkTail is a tail from the log's beginning, per event.
func BenchmarkTail(b *testing.B) {
	for _, decode := range []bool{false, true} {
		b.Run(fmt.Sprint("decode=", decode), func(b *testing.B) {
			log := natstest.LogOn(b, natstest.ServerIn(b, b.TempDir(), embedded.None), 1)
			const held = 50_000
			appendAll(b, log, 64, held)
			b.ResetTimer()
			for read := 0; read < b.N; {
				tail := must.Get(log.Tail(b.Context(), 0, 0, jetlog.TailOptions{}))(b)
				for n := 0; n < held && read < b.N; {
					batch := must.Get(tail.Next(b.Context()))(b)
					for _, m := range batch {
						if decode {
							_ = m.Recorded()
						}
					}
					n, read = n+len(batch), read+len(batch)
				}
				tail.Close()
			}
		})
	}
}

// BenchmarkHead is the barrier by readers.
func BenchmarkHead(b *testing.B) {
	for _, readers := range []int{1, 16} {
		b.Run(fmt.Sprint("readers=", readers), func(b *testing.B) {
			log := natstest.Log(b, 1)
			logtest.Add(b, log, "s", "r", benchText)
			b.ResetTimer()
			share(b, readers, b.N, func(int64) error {
				_, err := log.Head(b.Context(), 0)
				return err
			})
		})
	}
}

// BenchmarkSession reads a session that the log does not know, one of 20 events among
// 20,000 of others, and only its newest event.
func BenchmarkSession(b *testing.B) {
	log := natstest.LogOn(b, natstest.ServerIn(b, b.TempDir(), embedded.None), 1)
	appendAll(b, log, 64, 20_000)
	last := must.Get(log.Last(b.Context(), "s7"))(b)
	for name, c := range map[string]struct {
		session string
		after   uint64
		events  int
	}{"unknown": {"unknown", 0, 0}, "known": {"s7", 0, 20}, "newest": {"s7", last - 1, 1}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				n := 0
				for _, err := range log.Session(b.Context(), c.session, c.after, math.MaxUint64) {
					require.NoError(b, err)
					n++
				}
				require.Equal(b, c.events, n)
			}
		})
	}
}

// BenchmarkSubscriber is the public adapter, one event at a time.
func BenchmarkSubscriber(b *testing.B) {
	log := natstest.LogOn(b, natstest.ServerIn(b, b.TempDir(), embedded.None), 1)
	appendAll(b, log, 64, b.N)
	sub := must.Get(pubsub.NewSubscriber(log, pubsub.SubscriberConfig{Group: "g"}))(b)
	in := must.Get(sub.Subscribe(b.Context(), events.StreamName(0)))(b)
	b.ResetTimer()
	for range b.N {
		(<-in).Ack()
	}
	b.StopTimer()
	require.NoError(b, sub.Close())
}
