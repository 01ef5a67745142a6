package runner

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/room"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/follower"
)

// gathering brings the events of a subscription in batches that are worth their cost: while the partition rests, and
// while the processors are taken, events wait for more. One that takes a text away does not wait, nor do those before
// it. For one goroutine.
type gathering struct {
	feeding *Feeding
	sub     *follower.Subscription[projections.Judged]
	// tally counts what has come, and lets go of what was taken last when Next is called again.
	tally *room.Tally
	taken int
	// rested is when the partition's rest ends, in nanoseconds of Unix time.
	rested atomic.Int64

	// calls of the subscription outlive those of Next. One is under way, or its answer waits, once it is asked.
	calls  context.Context //nolint:containedctx // it ends with the gathering
	cancel context.CancelFunc
	asked  bool
	answer chan answer

	// held are the events that wait, the first of them since a time by this process's clock.
	held   []projections.Judged
	since  time.Time
	urgent bool
	err    error
}

type answer struct {
	events []projections.Judged
	err    error
}

const (
	// lookPause is the pause between two looks at whether the processors are still taken.
	lookPause = 50 * time.Millisecond
	// forever is longer than any wait.
	forever = time.Hour
)

func gather(
	ctx context.Context, sub *follower.Subscription[projections.Judged], feeding *Feeding,
) *gathering {
	g := &gathering{feeding: feeding, sub: sub, tally: sub.Tally(), answer: make(chan answer, 1)}
	g.calls, g.cancel = context.WithCancel(ctx)
	return g
}

// rest has the events gather for a while.
func (g *gathering) rest(d time.Duration) { g.rested.Store(time.Now().Add(d).UnixNano()) }

// Next implements pubsub.Batches. An error comes after what was held before it.
func (g *gathering) Next(ctx context.Context) ([]projections.Judged, error) {
	g.tally.Grow(-g.taken)
	g.taken = 0
	if g.feeding.Rest == 0 && g.feeding.Lag == 0 {
		batch, err := g.sub.Next(ctx)
		g.taken = g.came(batch)
		return batch, err
	}
	for {
		if len(g.held) == 0 && g.err != nil {
			err := g.err
			g.err = nil
			return nil, err
		}
		wait := g.wait(time.Now())
		if wait <= 0 {
			return g.take(), nil
		}
		if !g.asked {
			g.asked = true
			go func() {
				batch, err := g.sub.Next(g.calls)
				g.came(batch)
				g.answer <- answer{batch, err}
			}()
		}
		late := time.NewTimer(wait)
		select {
		case a := <-g.answer:
			g.asked, g.err = false, a.err
			g.hold(a.events)
		case <-late.C:
		case <-ctx.Done():
			late.Stop()
			return nil, ctx.Err()
		}
		late.Stop()
	}
}

// wait returns how long what is held waits before the next look at it, 0 if it waits no longer.
func (g *gathering) wait(now time.Time) time.Duration {
	switch {
	case len(g.held) == 0:
		return forever
	case g.urgent, g.err != nil, len(g.held) >= g.feeding.MaxBatch, g.tally.Left() <= 0:
		return 0
	}
	if rest := time.Duration(g.rested.Load() - now.UnixNano()); rest > 0 {
		return rest
	}
	left := g.feeding.Lag - max(now.Sub(g.held[0].Time), now.Sub(g.since)) // the log's clock may be ahead
	if g.feeding.Lag == 0 || left <= 0 || !g.feeding.Busy() {
		return 0
	}
	return min(left, lookPause)
}

func (g *gathering) hold(more []projections.Judged) {
	if len(g.held) == 0 {
		g.since = time.Now()
	}
	g.held = append(g.held, more...)
	g.urgent = g.urgent || slices.ContainsFunc(more, withdraws)
}

// take takes a batch from what is held, and no link without its turn.
func (g *gathering) take() []projections.Judged {
	n := min(len(g.held), g.feeding.MaxBatch)
	if n < len(g.held) && g.held[n-1].Continues {
		n++
	}
	batch := slices.Clip(g.held[:n])
	g.taken = sizeOf(batch)
	if g.held = g.held[n:]; len(g.held) == 0 {
		g.held = nil // what is held next does not keep the batch's memory
	}
	g.urgent = g.urgent && slices.ContainsFunc(g.held, withdraws)
	return batch
}

// Close implements pubsub.Batches.
func (g *gathering) Close() {
	g.cancel()
	if g.asked {
		<-g.answer
	}
	g.sub.Close()
}

// came counts events that have come, and returns their bytes.
func (g *gathering) came(batch []projections.Judged) int {
	n := sizeOf(batch)
	g.tally.Grow(n)
	return n
}

func sizeOf(batch []projections.Judged) (n int) {
	for i := range batch {
		n += batch[i].Size()
	}
	return n
}

func withdraws(e projections.Judged) bool { return events.Withdraws(e.Type) }
