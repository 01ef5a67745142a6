package follower_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/follower"
)

func link(session string) *events.SessionLinked {
	return &events.SessionLinked{SessionID: session, IdentityID: "ada"}
}

// TestNobodyIsGivenEventsOfTwoStreams exchanges a stream under subscribers of every kind, who follow a log that grows,
// with tails that break: an older copy of the disk is put back, or the stream is made anew. The stream then goes on
// with other events, fewer or more than it has lost. Each subscriber was given a part of the former stream, each event
// once and with the verdict of a private judge, and is told, as the follower is. In a new process those go on whose
// last event still stands, and the others begin again: each is given what the stream now has, as one who joins late.
func TestNobodyIsGivenEventsOfTwoStreams(t *testing.T) {
	t.Parallel()
	for way, exchange := range map[string]func(*natstest.Disk){
		"an older copy": (*natstest.Disk).PutBack, "an empty disk": (*natstest.Disk).Empty,
		"deleted while it is in use": nil,
	} {
		for n := range 2 {
			t.Run(fmt.Sprint(way, n), func(t *testing.T) {
				t.Parallel()
				seed := rand.Uint64()
				t.Logf("seed %d", seed)
				rng := rand.New(rand.NewPCG(seed, 3))
				x := &exchanged{t: t, rng: rng, disk: natstest.NewDisk(t), writes: &scribe{t: t, rng: rng, sessions: 6}}
				x.run(exchange)
			})
		}
	}
}

// exchanged is a stream that is exchanged under its subscribers. was is what it had, and is what it has.
type exchanged struct {
	t           *testing.T
	rng         *rand.Rand
	disk        *natstest.Disk
	writes      *scribe
	subscribers []*subscriber
	told        chan error
	was, is     []projections.Judged
}

func (x *exchanged) random() *rand.Rand { return rand.New(rand.NewPCG(x.rng.Uint64(), 4)) }

func (x *exchanged) write(nc *nats.Conn, log *jetlog.Log, n int) {
	x.writes.nc, x.writes.log = nc, log
	x.writes.write(n)
}

// stands reports whether the event at a sequence of the former stream is there.
func (x *exchanged) stands(at uint64) bool {
	return at == 0 || at <= uint64(len(x.is)) && encoded(x.is[at-1]) == encoded(x.was[at-1])
}

func (x *exchanged) run(exchange func(*natstest.Disk)) {
	x.disk.Apart(func(nc *nats.Conn, log *jetlog.Log) { x.write(nc, log, 1+x.rng.IntN(60)) })
	x.disk.Copy()
	ctx, cancel := context.WithTimeout(x.t.Context(), 2*time.Minute)
	defer cancel()
	var release func()
	x.disk.Serve(func(nc *nats.Conn, log *jetlog.Log) {
		release = x.followed(ctx, nc, log)
		if exchange == nil {
			js := must.Get(jetstream.New(nc))(x.t)
			require.NoError(x.t, js.DeleteStream(ctx, events.StreamName(0)))
			anew := natstest.Outside(x.t, nc)
			x.grow(nc, anew)
			release()
			x.again(ctx, nc, anew)
		}
	})
	if exchange == nil {
		return
	}
	exchange(x.disk)
	x.disk.Apart(x.grow)
	x.disk.Serve(func(nc *nats.Conn, log *jetlog.Log) {
		release()
		x.again(ctx, nc, log)
	})
}

// followed has subscribers follow while the log grows. It returns with sessions still to be read by judges, which
// wait for release.
func (x *exchanged) followed(ctx context.Context, nc *nats.Conn, log *jetlog.Log) (release func()) {
	followed := &shaky{Log: x.disk.Outside(), rng: x.random()}
	f := follower.New(followed, follower.Config{
		Rules: rules, Pause: time.Millisecond, Bytes: []int64{1, 1, 64 << 20}[x.rng.IntN(3)],
	})
	x.told = make(chan error, 6)
	f.Decide(func(*jetlog.Message) {})
	go func() { x.told <- f.Run(ctx) }()
	for range 5 {
		head := must.Get(log.Head(ctx, 0))(x.t)
		s := &subscriber{name: fmt.Sprint(len(x.subscribers)), from: x.rng.Uint64N(head.Seq + 1),
			raw: x.rng.IntN(4) == 0, rng: x.random()}
		x.subscribers = append(x.subscribers, s)
		go func() { x.told <- s.followUntilTold(ctx, f) }()
		x.write(nc, log, 1+x.rng.IntN(20))
		if x.rng.IntN(3) == 0 {
			followed.breakOne(x.rng.IntN)
		}
	}
	followed.well.Store(true)
	release = followed.hold()
	x.write(nc, log, 1+x.rng.IntN(20))
	natstest.Append(x.t, log, link("lost"))
	head := must.Get(log.Head(ctx, 0))(x.t)
	require.NoError(x.t, f.Folded(0).Wait(ctx, head.Seq))
	x.was = privately(x.t, log, 0)
	return release
}

// grow has the other stream grow.
func (x *exchanged) grow(nc *nats.Conn, log *jetlog.Log) {
	x.write(nc, log, x.rng.IntN(160))
	x.is = privately(x.t, log, 0)
}

// again waits until all were told, and follows the other stream in a new process.
func (x *exchanged) again(ctx context.Context, nc *nats.Conn, log *jetlog.Log) {
	for range len(x.subscribers) + 1 {
		require.ErrorIs(x.t, <-x.told, jetlog.ErrStream)
	}
	for _, s := range x.subscribers {
		require.Equal(x.t, s.of(x.was), s.bytes, s.name)
		if !x.stands(s.at()) {
			s.from, s.taken, s.bytes = 0, nil, nil
		}
	}
	f := follower.New(x.disk.Outside(), follower.Config{Rules: rules, Pause: time.Millisecond})
	natstest.Run(x.t, f.Run)
	var running sync.WaitGroup
	follow := func(s *subscriber) {
		running.Go(func() {
			if err := s.follow(ctx, f, 0); err != nil {
				x.t.Error(err)
			}
		})
	}
	for _, s := range x.subscribers {
		follow(s)
	}
	for n := range 3 {
		x.write(nc, log, 1+x.rng.IntN(30))
		head := must.Get(log.Head(ctx, 0))(x.t)
		s := &subscriber{name: fmt.Sprint("late ", n), from: x.rng.Uint64N(head.Seq + 1), rng: x.random()}
		x.subscribers = append(x.subscribers, s)
		follow(s)
	}
	natstest.Append(x.t, log, link(lastOfAll))
	running.Wait()
	x.is = privately(x.t, log, 0)
	for _, s := range x.subscribers {
		s.isGiven(x.t, x.is)
	}
}

// followUntilTold takes events, and pauses and begins again at random, until it is told that the stream is another one.
func (s *subscriber) followUntilTold(ctx context.Context, f *follower.Follower) error {
	for ctx.Err() == nil {
		next, stop := s.subscribe(f, 0)
		for ctx.Err() == nil && s.rng.IntN(12) != 0 {
			batch, err := next(ctx)
			s.take(batch)
			if errors.Is(err, jetlog.ErrStream) {
				stop()
				return err
			}
			<-time.After(time.Duration(s.rng.IntN(2000)) * time.Microsecond)
		}
		stop()
	}
	return fmt.Errorf("%s was not told: %w", s.name, ctx.Err())
}

// of returns the bytes of as many events of a stream as the subscriber was given, from where it began.
func (s *subscriber) of(stream []projections.Judged) (out []string) {
	for _, j := range stream {
		if j.Position.Seq > s.from && len(out) < len(s.taken) {
			out = append(out, encoded(s.shown(j)))
		}
	}
	return out
}
