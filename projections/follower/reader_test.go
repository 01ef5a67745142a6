package follower

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events/room"
)

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
