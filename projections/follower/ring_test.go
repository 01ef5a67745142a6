package follower

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/room"
)

var errTest = errors.New("another stream")

// ringOf returns an open ring of numbers with a reader, and its budget.
func ringOf(at uint64) (*ring[uint64], *hold, *budget) {
	b := newBudget(1000, &room.Room{})
	r := newRing(b, func(n *uint64) uint64 { return *n }, func(*uint64) bool { return false }, nil)
	return r, r.startHeld(at), b
}

// chunkOf is a chunk of numbers, of ten bytes each.
func chunkOf(after, last uint64) chunk[uint64] {
	c := chunk[uint64]{after: after, last: last}
	for n := after + 1; n <= last; n++ {
		c.events = append(c.events, n)
	}
	c.bytes = 10 * len(c.events)
	return c
}

func beginAt(at uint64) func() uint64 { return func() uint64 { return at } }

func changed(h *hold) bool {
	select {
	case <-h.changed:
		return true
	default:
		return false
	}
}

// What all readers have taken goes from the ring at once, and the bytes of it from the budget: also when the reader
// that was behind leaves, and when the ring is closed.
func TestARingHoldsOnlyWhatSomebodyHasYetToTake(t *testing.T) {
	t.Parallel()
	r, h, b := ringOf(0)
	r.publish(chunkOf(0, 2))
	r.publish(chunkOf(2, 4))
	behind := r.newHold(0)
	batch, upTo, lost, err := r.take(h, 100, 1000)
	require.Equal(t, []uint64{1, 2, 3, 4}, batch)
	require.EqualValues(t, 4, upTo)
	require.False(t, lost)
	require.NoError(t, err)
	require.EqualValues(t, 40, b.used.Load(), "another reader is behind")
	r.leave(behind)
	require.Zero(t, b.used.Load(), "the reader that was behind has left")

	r.publish(chunkOf(4, 6))
	require.EqualValues(t, 20, b.used.Load())
	batch, _, _ = must.Three(r.take(h, 100, 1000))(t)
	require.Equal(t, []uint64{5, 6}, batch)
	require.Zero(t, b.used.Load(), "the only reader has taken it")

	r.publish(chunkOf(6, 8))
	changed(h)
	r.stop(nil)
	require.Zero(t, b.used.Load(), "the ring is closed")
	require.True(t, changed(h), "the reader is told")
	_, upTo, lost, _ = r.take(h, 100, 1000)
	require.True(t, lost)
	require.EqualValues(t, 6, upTo)

	require.Nil(t, r.hold(beginAt(8)), "a closed ring keeps nothing")
	r.publish(chunkOf(8, 9))
	require.Zero(t, b.used.Load(), "nor takes it anything")

	r.start(8)
	r.publish(chunkOf(8, 9))
	require.Zero(t, b.used.Load(), "who was in the ring before it was closed is not in it")
	require.Nil(t, r.startHeld(7), "it is open")
	require.NotNil(t, r.hold(beginAt(9)))
	r.publish(chunkOf(9, 10))
	require.EqualValues(t, 10, b.used.Load())
	require.True(t, r.held(10))
}

// A ring without readers keeps nothing of what it had for them, and goes on behind it.
func TestARingWithoutReadersIsEmptied(t *testing.T) {
	t.Parallel()
	r, h, b := ringOf(0)
	require.True(t, r.held(2))
	r.publish(chunkOf(0, 2))
	r.publish(chunkOf(2, 4))
	r.mu.Lock()
	delete(r.holds, h)
	r.mu.Unlock()
	require.False(t, r.held(6))
	require.Zero(t, b.used.Load())
	require.EqualValues(t, 6, r.hold(beginAt(0)).at, "nobody joins before the ring's end")
}

// A reader is given so many events, or the chunks of so many bytes, and then the rest.
func TestAReaderTakesNoMoreOfTheRingThanItAskedFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		most, bytes int
		want        [][]uint64
	}{
		"all":             {100, 1000, [][]uint64{{1, 2, 3, 4, 5, 6}}},
		"by events":       {3, 1000, [][]uint64{{1, 2, 3}, {4, 5, 6}}},
		"as chunks end":   {2, 1000, [][]uint64{{1, 2}, {3, 4}, {5, 6}}},
		"by bytes":        {100, 20, [][]uint64{{1, 2}, {3, 4}, {5, 6}}},
		"bytes, a bit on": {100, 21, [][]uint64{{1, 2, 3, 4}, {5, 6}}},
		"no room":         {100, 0, [][]uint64{{1, 2}, {3, 4}, {5, 6}}},
	} {
		r, h, _ := ringOf(0)
		for after := uint64(0); after < 6; after += 2 {
			r.publish(chunkOf(after, after+2))
		}
		var got [][]uint64
		for h.at < 6 {
			batch, upTo, lost := must.Three(r.take(h, c.most, c.bytes))(t)
			require.False(t, lost)
			require.Equal(t, upTo, batch[len(batch)-1])
			got = append(got, batch)
		}
		require.Equal(t, c.want, got, name)
	}
}

// What a reader is given is its own to append to: others are given the same events.
func TestWhatAReaderAppendsIsNotInTheRing(t *testing.T) {
	t.Parallel()
	r, h, _ := ringOf(0)
	other := r.newHold(0)
	r.publish(chunkOf(0, 4))
	first, _, _, _ := r.take(h, 2, 1000)
	_ = append(first, 100)
	all, _, _, _ := r.take(other, 100, 1000)
	require.Equal(t, []uint64{1, 2, 3, 4}, all)
}

// A chunk that the ring has already is not taken again. One that does not go on where the ring ends has the ring begin
// anew with it, and whoever has not taken all before that reads the log by itself.
func TestAChunkThatDoesNotGoOnWhereTheRingEnds(t *testing.T) {
	t.Parallel()
	r, h, b := ringOf(0)
	r.publish(chunkOf(0, 2))
	require.True(t, changed(h))
	r.publish(chunkOf(0, 2))
	require.False(t, changed(h), "there is nothing new")
	require.EqualValues(t, 20, b.used.Load())

	r.publish(chunkOf(5, 6))
	require.True(t, changed(h))
	require.EqualValues(t, 10, b.used.Load())
	_, _, lost, _ := r.take(h, 100, 1000)
	require.True(t, lost, "events 3 to 5 are not in the ring")
	joined, lost := r.join(h, 4)
	require.False(t, joined)
	require.True(t, lost)
	late := r.newHold(5)
	r.leave(h)
	batch, upTo, lost, _ := r.take(late, 100, 1000)
	require.Equal(t, []uint64{6}, batch)
	require.EqualValues(t, 6, upTo)
	require.False(t, lost)

	behind := r.newHold(6)
	r.publish(chunkOf(6, 8))
	r.publish(chunkOf(7, 9))
	_, _, lost, _ = r.take(behind, 100, 1000)
	require.True(t, lost, "event 7 is not in the ring")
}

// A ring that grows beyond its budget lets its oldest events go.
func TestARingKeepsToItsBudget(t *testing.T) {
	t.Parallel()
	r, h, b := ringOf(0)
	r.publish(chunkOf(0, 60))
	r.publish(chunkOf(60, 100))
	require.EqualValues(t, 1000, b.used.Load())
	r.publish(chunkOf(100, 101))
	require.EqualValues(t, 410, b.used.Load())
	_, _, lost, _ := r.take(h, 100, 1000)
	require.True(t, lost)
}

// What the ring lets go for want of room, the readers that have not taken it are told at once: nothing else may come
// for long.
func TestWhoFallsOutOfTheRingIsTold(t *testing.T) {
	t.Parallel()
	r, h, b := ringOf(0)
	r.publish(chunkOf(0, 2))
	ahead := r.newHold(2)
	r.publish(chunkOf(2, 4))
	changed(h)
	changed(ahead)
	require.True(t, r.shed())
	require.EqualValues(t, 20, b.used.Load())
	require.True(t, changed(h))
	require.False(t, changed(ahead), "it misses nothing")
	_, _, lost, _ := r.take(h, 100, 1000)
	require.True(t, lost)
	r.leave(h)
	batch, _, lost, _ := r.take(ahead, 100, 1000)
	require.False(t, lost)
	require.Equal(t, []uint64{3, 4}, batch)
	require.False(t, r.shed(), "it holds nothing")
}

// A reader joins once it is at its hold, there or further on. What it has read by itself it is not given again.
func TestAReaderJoinsAtItsHold(t *testing.T) {
	t.Parallel()
	r, keeps, _ := ringOf(0)
	r.publish(chunkOf(0, 2))
	h := r.hold(beginAt(1))
	require.EqualValues(t, 2, h.at)
	require.EqualValues(t, 3, r.hold(beginAt(3)).at)
	r.publish(chunkOf(2, 6))
	for at, want := range []bool{false, false, true, true, true} {
		joined, lost := r.join(h, uint64(at))
		require.Equal(t, want, joined, at)
		require.False(t, lost)
	}
	batch, _, _, _ := r.take(h, 100, 1000)
	require.Equal(t, []uint64{5, 6}, batch)
	batch, _, _, _ = r.take(keeps, 100, 1000)
	require.Equal(t, []uint64{1, 2, 3, 4, 5, 6}, batch)
}

// A ring that was closed with an error says so to those that were in it, also if it was closed without one before, and
// says nothing more of it once it is open again.
func TestARingSaysWhyItIsClosed(t *testing.T) {
	t.Parallel()
	r, h, _ := ringOf(0)
	r.stop(nil)
	_, _, lost, err := r.take(h, 100, 1000)
	require.True(t, lost)
	require.NoError(t, err)
	r.stop(errTest)
	require.ErrorIs(t, must.Err(r.take(h, 100, 1000)), errTest)
	r.start(0)
	_, _, lost, err = r.take(h, 100, 1000)
	require.True(t, lost)
	require.NoError(t, err)
}

// An open ring says once that its last reader has left.
func TestARingSaysThatItsLastReaderHasLeft(t *testing.T) {
	t.Parallel()
	r, h, _ := ringOf(0)
	said := 0
	r.idle = func() { said++ }
	other := r.newHold(0)
	r.leave(other)
	r.leave(other)
	require.Zero(t, said)
	r.leave(h)
	r.leave(h)
	require.Equal(t, 1, said)
	r.stop(nil)
	r.start(0)
	h = r.newHold(0)
	r.stop(nil)
	r.leave(h)
	require.Equal(t, 1, said, "it was closed before")
}

// numbers is a source of numbers after a sequence, so many at once.
type numbers struct{ at, most uint64 }

func (b *numbers) next(context.Context) (batch []uint64, upTo uint64, err error) {
	for range b.most {
		b.at++
		batch = append(batch, b.at)
	}
	return batch, b.at, nil
}

func (*numbers) close() {}

// The ring keeps nothing for a reader that is far behind: what comes meanwhile would fill the budget long before the
// reader is there. It keeps what comes for one that is near: else a reader that is only as fast as the log grows would
// never join.
func TestTheRingKeepsWhatComesForReadersThatAreNear(t *testing.T) {
	t.Parallel()
	const step = near / 4
	written := uint64(3 * near)
	ring := newRing(newBudget(1<<30, &room.Room{}), func(n *uint64) uint64 { return *n },
		func(*uint64) bool { return false }, nil)
	ring.start(written)
	log := numbers{most: step}
	r := &reader[uint64]{
		ring: ring, floor: func() uint64 { return written }, most: step, left: func() int { return 1 << 30 },
		open: func(after uint64) source[uint64] { return &numbers{after, step} },
	}
	defer r.close()
	// The log grows once the reader is near, as fast as the reader reads.
	for round := 0; !r.joined || r.at < written; round++ {
		far := r.at+near < written
		before := r.at
		batch, upTo := must.Two(r.next(t.Context()))(t)
		require.Equal(t, before+1, batch[0])
		require.Equal(t, upTo, batch[len(batch)-1])
		require.Equal(t, far, r.hold == nil, "at %d of %d", before, written)
		if far || r.joined {
			continue
		}
		require.Less(t, round, 100, "the reader never joins")
		log.at = written
		events, last, _ := log.next(t.Context())
		ring.publish(chunk[uint64]{events: events, after: written, last: last, bytes: len(events)})
		written = last
	}
}

// An event that is folded may be erased. A reader that comes right then, while another reader has the ring hold the
// event, joins behind it.
func TestAReaderJoinsBehindWhatIsFolded(t *testing.T) {
	t.Parallel()
	p := New(natstest.Log(t, 1), Config{}).parts[0]
	p.raw.start(0)
	p.raw.hold(p.read.Load)
	taken := make(chan struct{})
	h := p.raw.hold(func() uint64 {
		go func() {
			p.take([]jetlog.Message{{Position: at(0, 1)}})
			close(taken)
		}()
		require.NoError(t, p.folded.Wait(t.Context(), 1))
		return p.read.Load()
	})
	<-taken
	require.EqualValues(t, 1, h.at)
	c, some := p.oldestPending(1)
	require.True(t, some, "the other reader is given it")
	require.EqualValues(t, 1, c.last)
}
