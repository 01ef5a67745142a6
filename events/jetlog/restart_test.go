package jetlog_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/natstest"
)

func TestRestartKeepsEverythingAndKnowsDuplicates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var want []string
	for life := range 3 {
		s := natstest.ServerIn(t, dir, embedded.Group)
		log := natstest.LogOn(t, s, 4)
		for i := range 50 * life {
			ack, err := log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{fact("s", fmt.Sprint(i))}})
			require.NoError(t, err)
			require.Equal(t, jetlog.Ack{Position: events.Position{Partition: log.Partition("s"), Seq: uint64(i + 1)}, Duplicate: true}, ack)
			require.NoError(t, log.Durable(t.Context(), ack.Position))
		}
		for i := 50 * life; i < 50*(life+1); i++ {
			f := fact("s", fmt.Sprint(i))
			want = append(want, f.EventID())
			ack, err := log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{f}})
			require.NoError(t, err)
			require.False(t, ack.Duplicate)
		}
		require.Equal(t, want, ids(t, log, "s"))
		s.Stop()
	}
}

// restarting is a server on one address that can be stopped and started under load.
type restarting struct {
	t      *testing.T
	dir    string
	listen string
	server *embedded.Server
}

func newRestarting(t *testing.T) *restarting {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &restarting{t: t, dir: t.TempDir(), listen: l.Addr().String()}
	require.NoError(t, l.Close())
	r.start()
	t.Cleanup(func() { r.server.Stop() })
	return r
}

func (r *restarting) start() {
	var err error
	r.server, err = embedded.Start(r.t.Context(), embedded.Config{Dir: r.dir, Sync: embedded.Group, Listen: r.listen})
	require.NoError(r.t, err)
}

func (r *restarting) restart() {
	r.server.Stop()
	r.start()
}

func (r *restarting) log() *jetlog.Log {
	nc, err := nats.Connect(r.listen, nats.MaxReconnects(-1), nats.ReconnectWait(5*time.Millisecond))
	require.NoError(r.t, err)
	r.t.Cleanup(nc.Close)
	log, err := jetlog.Open(r.t.Context(), nc, jetlog.Config{GateDir: r.dir, Deadline: time.Second})
	require.NoError(r.t, err)
	return log
}

func TestServerThatRestartsMidLoadLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	r := newRestarting(t)
	log := r.log()
	tail, err := log.Tail(t.Context(), 0, 0, jetlog.TailOptions{})
	require.NoError(t, err)
	defer tail.Close()
	const writers, each = 8, 60
	var load sync.WaitGroup
	var done atomic.Int64
	for w := range writers {
		load.Go(func() {
			for i := range each {
				if err := persist(t.Context(), log, fact(fmt.Sprint("s", w), fmt.Sprint(i))); err != nil {
					t.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	for n := range int64(3) {
		require.Eventually(t, func() bool { return done.Load() > n*writers*each/4 }, 30*time.Second, time.Millisecond)
		r.restart()
	}
	load.Wait()
	for w := range writers {
		var want []string
		for i := range each {
			want = append(want, fact(fmt.Sprint("s", w), fmt.Sprint(i)).EventID())
		}
		require.Equal(t, want, ids(t, log, fmt.Sprint("s", w)))
	}
	followed(t, tail, writers*each)
}

// persist asks again until the log has an event on disk.
func persist(ctx context.Context, log *jetlog.Log, f events.Fact) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		ack, err := log.Append(ctx, jetlog.Append{Facts: []events.Fact{f}})
		if err == nil {
			err = log.Durable(ctx, ack.Position)
		}
		if err == nil || !errors.Is(err, jetlog.ErrUnavailable) || ctx.Err() != nil {
			return err
		}
	}
}

// followed holds that a tail gives events 1 to n, each once and in order.
func followed(t *testing.T, tail *jetlog.Tail, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for seen := uint64(0); seen < uint64(n); {
		batch, err := tail.Next(ctx)
		require.NoError(t, err, "after %d of %d", seen, n)
		for _, m := range batch {
			seen++
			require.Equal(t, seen, m.Position.Seq)
		}
	}
}
