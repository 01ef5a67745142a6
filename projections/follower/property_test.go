package follower_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
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
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/follower"
)

// subscriber is a view with a checkpoint that it goes back to when it fails.
type subscriber struct {
	name  string
	rng   *rand.Rand
	from  uint64
	taken []projections.Judged
	// bytes are what was taken, as it was then: nobody may change it later.
	bytes []string
	// raw: it asks for no verdicts.
	raw bool
}

func (s *subscriber) at() uint64 {
	if n := len(s.taken); n > 0 {
		return s.taken[n-1].Position.Seq
	}
	return s.from
}

// follow takes events until the last. It pauses, fails and begins again at random.
func (s *subscriber) follow(ctx context.Context, f *follower.Follower, partition int) error {
	for lives := 0; !s.ended(); lives++ {
		next, stop := s.subscribe(f, partition)
		for !s.ended() && (s.rng.IntN(12) != 0 || lives > 20) {
			batch, err := next(ctx)
			if ctx.Err() != nil {
				stop()
				return fmt.Errorf("%s is at %d: %w", s.name, s.at(), ctx.Err())
			}
			if err != nil {
				continue
			}
			if last := batch[len(batch)-1]; last.Continues {
				stop()
				return fmt.Errorf("%s is given half of a change at %s", s.name, last.Position)
			}
			if s.rng.IntN(10) == 0 {
				break // it fails, and what it was given is lost
			}
			s.take(batch)
			if s.rng.IntN(4) == 0 {
				<-time.After(time.Duration(s.rng.IntN(3000)) * time.Microsecond) // a slow subscriber
			}
		}
		stop()
	}
	return nil
}

func (s *subscriber) take(batch []projections.Judged) {
	for _, j := range batch {
		s.taken, s.bytes = append(s.taken, j), append(s.bytes, encoded(j))
	}
}

// shown returns what the subscriber is to be shown of an event.
func (s *subscriber) shown(j projections.Judged) projections.Judged {
	if !s.raw {
		return j
	}
	return projections.Judged{Recorded: events.Recorded{
		Position: j.Position, ID: j.ID, Type: j.Type, Subject: j.Subject, Time: j.Time,
	}, Continues: j.Continues}
}

// ended reports whether the subscriber was given the last event of the test.
func (s *subscriber) ended() bool {
	n := len(s.taken)
	return n > 0 && strings.Contains(s.taken[n-1].Subject, lastOfAll)
}

// lastOfAll is in the name of the sessions that have the last events.
const lastOfAll = "last-of-all"

func (s *subscriber) subscribe(
	f *follower.Follower, partition int,
) (next func(context.Context) ([]projections.Judged, error), stop func()) {
	most := 1 + s.rng.IntN(50)
	if !s.raw {
		in := f.Judged(partition, s.at(), most)
		return in.Next, in.Close
	}
	in := f.Events(partition, s.at(), jetlog.TailOptions{MaxBatch: most, HeadersOnly: s.rng.IntN(2) == 0})
	return func(ctx context.Context) (out []projections.Judged, err error) {
		batch, err := in.Next(ctx)
		for _, m := range batch {
			e := events.Recorded{
				Position: m.Position, ID: m.ID(), Type: m.Type(), Subject: m.Subject, Time: m.Time.UTC(),
			}
			out = append(out, projections.Judged{Recorded: e, Continues: m.Continues})
		}
		return out, err
	}, in.Close
}

// TestLiveIsRebuiltIsJoinedLate has subscribers of every kind follow a log that grows: slow, failing, joining anywhere,
// while tails break, the log fails now and then, and the ring is too small for them. Each is given each event once and
// in order, with the verdict of a private judge that reads the log from its beginning.
func TestLiveIsRebuiltIsJoinedLate(t *testing.T) {
	t.Parallel()
	for _, bytes := range []int64{1, 100 << 10, 64 << 20} {
		t.Run(fmt.Sprint("bytes=", bytes), func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			live(t, seed, bytes)
		})
	}
}

func live(t *testing.T, seed uint64, bytes int64) {
	const partitions, count = 2, 300
	rng := rand.New(rand.NewPCG(seed, 1))
	server := natstest.Server(t)
	log := &shaky{Log: natstest.LogOn(t, server, partitions), rng: rand.New(rand.NewPCG(seed, 2))}
	writes := &scribe{t: t, log: log.Log, nc: natstest.Connect(t, server), rng: rng, sessions: 12}
	writes.write(rng.IntN(100))
	f := follower.New(log, follower.Config{Rules: rules, Bytes: bytes, Pause: time.Millisecond})
	var decided [partitions][]uint64
	f.Decide(func(m *jetlog.Message) {
		decided[m.Position.Partition] = append(decided[m.Position.Partition], m.Position.Seq)
	})
	stop := natstest.Run(t, f.Run)

	var subscribers [partitions][]*subscriber
	var running sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), hang.Limit)
	defer cancel()
	join := func(from uint64, k int) {
		s := &subscriber{name: fmt.Sprint(len(subscribers[k]), " of ", k), from: from, raw: rng.IntN(4) == 0,
			rng: rand.New(rand.NewPCG(seed, rng.Uint64()))}
		subscribers[k] = append(subscribers[k], s)
		running.Go(func() {
			if err := s.follow(ctx, f, k); err != nil {
				t.Error(err)
			}
		})
	}
	for written := 0; written < count; {
		n := 1 + rng.IntN(30)
		writes.write(n)
		written += n
		k := rng.IntN(partitions)
		head := must.Get(log.Log.Head(ctx, k))(t)
		if len(subscribers[k]) < 6 {
			join(rng.Uint64N(head.Seq+1), k)
		}
		if rng.IntN(3) == 0 {
			log.breakOne(rng.IntN)
		}
	}
	log.well.Store(true)
	for k, n := 0, 0; k < partitions; n++ {
		session := fmt.Sprint(lastOfAll, n)
		if log.Partition(session) == k {
			natstest.Append(t, log.Log, &events.SessionLinked{SessionID: session, IdentityID: "i"})
			k++
		}
	}
	running.Wait()
	stop() // it may still be deciding
	for k := range partitions {
		want := privately(t, log.Log, k)
		for _, s := range subscribers[k] {
			s.isGiven(t, want)
		}
		requireAscending(t, decided[k])
	}
}

// isGiven holds what the subscriber was given against all that the log has.
func (s *subscriber) isGiven(t *testing.T, all []projections.Judged) {
	t.Helper()
	var want, got []string
	verdicts := map[events.Position]projections.Judged{}
	for _, j := range all {
		if j.Position.Seq > s.from {
			want = append(want, j.Position.String())
			verdicts[j.Position] = j
		}
	}
	for _, j := range s.taken {
		got = append(got, j.Position.String())
	}
	require.Equal(t, want, got, s.name)
	for i, j := range s.taken {
		of := s.shown(verdicts[j.Position])
		require.Equal(t, of, j, "%s %s", s.name, j.Position)
		require.Equal(t, encoded(of), s.bytes[i], "%s %s", s.name, j.Position)
	}
}

func requireAscending(t *testing.T, seqs []uint64) {
	t.Helper()
	for i := 1; i < len(seqs); i++ {
		require.Equal(t, seqs[i-1]+1, seqs[i])
	}
}

// TestEveryEventIsJudgedLiveAsInPrivate: the traffic of these tests has every type of event and every kind of verdict,
// and what is judged live is byte for byte what a private judge says.
func TestEveryEventIsJudgedLiveAsInPrivate(t *testing.T) {
	t.Parallel()
	server := natstest.Server(t)
	log := natstest.LogOn(t, server, 1)
	f := follower.New(log, follower.Config{Rules: rules})
	natstest.Run(t, f.Run)
	in := f.Judged(0, 0, 100)
	defer in.Close()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	writes := &scribe{
		t: t, log: log, nc: natstest.Connect(t, server), rng: rand.New(rand.NewPCG(seed, 1)), sessions: 40,
	}
	writes.write(3000)
	head := must.Get(log.Head(t.Context(), 0))(t)
	var got []projections.Judged
	var bytes []string // as they were when they came: nobody may change them later
	for len(got) == 0 || got[len(got)-1].Position.Seq < head.Seq {
		batch := must.Get(in.Next(t.Context()))(t)
		got = append(got, batch...)
		for _, j := range batch {
			bytes = append(bytes, encoded(j))
		}
	}
	want := privately(t, log, 0)
	require.Equal(t, len(want), len(got))
	types, kinds, whole := map[string]bool{}, map[session.Kind]bool{}, false
	for i := range want {
		require.Equal(t, want[i], got[i], want[i].Position)
		require.Equal(t, encoded(want[i]), bytes[i], want[i].Position)
		whole = whole || want[i].Continues
		kinds[want[i].Change.Kind] = true
		if want[i].Fact != nil {
			types[want[i].Type] = true
		}
	}
	require.True(t, whole, "events that belong together")
	require.Equal(t, events.Types(), slices.Sorted(maps.Keys(types)))
	for kind := session.Duplicate; kind <= session.Erased; kind++ {
		require.True(t, kinds[kind], kind.String())
	}
}

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
	ctx, cancel := context.WithTimeout(x.t.Context(), hang.Limit)
	defer cancel()
	var release func()
	x.disk.Serve(func(nc *nats.Conn, log *jetlog.Log) {
		release = x.followed(ctx, nc, log)
		if exchange == nil {
			require.NoError(x.t, must.Get(jetstream.New(nc))(x.t).DeleteStream(ctx, events.StreamName(0)))
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
