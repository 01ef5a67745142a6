package feed_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/room"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/feed"
)

func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }

// drawn is a log of some sequences, of which some are erased, and a source that brings the others in drawn pieces,
// late, and with errors in between.
type drawn struct {
	*rand.Rand
	tally  *room.Tally
	left   []projections.Judged
	last   uint64
	closed bool

	mu     sync.Mutex
	erased map[uint64]bool
}

var errBroken = errors.New("the log broke off")

func draw(seed uint64) *drawn {
	d := &drawn{Rand: rand.New(rand.NewPCG(seed, 1)), erased: map[uint64]bool{}, tally: new(room.Room).Tally()}
	d.last = 1 + d.Uint64N(60)
	for seq := uint64(1); seq <= d.last; seq++ {
		if d.erased[seq] = d.IntN(4) == 0; !d.erased[seq] {
			d.left = append(d.left, judged(seq))
		}
	}
	return d
}

func judged(seq uint64) projections.Judged {
	return projections.Judged{Recorded: events.Recorded{Time: time.Now(), Position: events.Position{Seq: seq}}}
}

func (d *drawn) Tally() *room.Tally { return d.tally }

func (d *drawn) Close() { d.closed = true }

func (d *drawn) Next(ctx context.Context) ([]projections.Judged, error) {
	if d.IntN(6) == 0 {
		return nil, errBroken
	}
	after := time.Duration(d.IntN(3)) * 200 * time.Millisecond
	if len(d.left) == 0 {
		after = time.Hour
	}
	select {
	case <-time.After(after):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	n := min(1+d.IntN(9), len(d.left))
	batch := d.left[:n:n]
	d.left = d.left[n:]
	return batch, nil
}

// Still implements feed.Gaps.
func (d *drawn) Still(_ context.Context, _ int, after, upTo uint64) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for seq := after + 1; seq <= upTo; seq++ {
		if !d.erased[seq] {
			return false, nil
		}
	}
	return true, nil
}

// Whatever is asked for, whatever fails and however late events come: each comes once, in order, none is behind the end
// that was asked for, and none is waited for that was erased.
func TestEachEventComesOnceUpToTheEnd(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			d := draw(seed)
			options := []feed.Options{
				{}, {Most: 5, Ahead: 3}, {Most: 7, Lag: time.Second, Busy: func() bool { return d.last%2 == 0 }},
			}[seed%3]
			want, got := []uint64{}, []uint64{}
			for _, e := range d.left {
				want = append(want, e.Position.Seq)
			}
			ends := rand.New(rand.NewPCG(seed, 2))
			f := feed.Judged(d, d, events.Position{}, options)
			for upTo := uint64(0); upTo < d.last; {
				upTo = min(d.last, upTo+1+ends.Uint64N(20))
				got = append(got, upToEnd(t, f, upTo)...)
				n, _ := slices.BinarySearch(want, upTo+1)
				require.Equal(t, want[:n], got, "seed %d up to %d", seed, upTo)
			}
			f.Close()
			require.True(t, d.closed)
		})
	}
}

func upToEnd(t *testing.T, f *feed.Feed[projections.Judged], upTo uint64) (got []uint64) {
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		batch, err := f.Next(ctx, upTo)
		cancel()
		for i := range batch {
			got = append(got, batch[i].Position.Seq)
		}
		if err == nil && len(batch) == 0 {
			return got
		}
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			require.ErrorIs(t, err, errBroken)
		}
	}
}

// late brings an event after somebody else has passed it: it was erased meanwhile.
type late struct {
	*drawn
	erase func()
}

func (l *late) Next(ctx context.Context) ([]projections.Judged, error) {
	if l.erase == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	l.erase()
	l.erase = nil
	<-time.After(time.Second)
	return []projections.Judged{judged(1), judged(2), judged(3)}, nil
}

func TestWhatWasPassedIsNotGivenLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &late{drawn: &drawn{erased: map[uint64]bool{}, tally: new(room.Room).Tally()}}
		l.erase = func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.erased[1], l.erased[2] = true, true
		}
		f := feed.Judged(l, l, events.Position{}, feed.Options{})
		defer f.Close()
		require.Empty(t, must.Get(f.Next(t.Context(), 2))(t))
		batch := must.Get(f.Next(t.Context(), feed.NoEnd))(t)
		require.Equal(t, []uint64{3}, []uint64{batch[0].Position.Seq})
		require.Len(t, batch, 1)
	})
}

// How long events wait is bounded by this process's clock, too: that of the log's server may be ahead.
func TestAClockThatIsAheadLengthensNoWait(t *testing.T) {
	t.Parallel()
	o := feed.Options{Most: 2, Lag: 2 * time.Second, Busy: func() bool { return true }}
	for _, ahead := range []time.Duration{0, time.Hour} {
		require.True(t, o.Waits(time.Now().Add(ahead), time.Second), ahead)
		require.False(t, o.Waits(time.Now().Add(ahead), 3*time.Second), ahead)
	}
	require.False(t, o.Waits(time.Now().Add(-time.Hour), 0), "an old event")
}

// Events that come one at a time are not copied again with each that comes, and a batch stays as it was taken.
func TestGatheringCopiesLittle(t *testing.T) { //nolint:paralleltest // it counts the allocations of the process
	all := make([]projections.Judged, 1000)
	for i := range all {
		all[i].Position.Seq = uint64(i + 1)
	}
	next := uint64(1)
	for _, batch := range (feed.Options{Most: 40}).Gathered(all, 50) {
		require.Len(t, batch, 40)
		for _, e := range batch {
			require.Equal(t, next, e.Position.Seq)
			next++
		}
	}
	require.Greater(t, next, uint64(900))
	size := testing.AllocsPerRun(5, func() { feed.Options{Most: len(all)}.Gathered(all, len(all)) })
	require.Less(t, size, 40.0, "they grow in steps")
}
