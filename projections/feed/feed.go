// Package feed is the one loop that reads the events of a partition for those who apply, scan or replay them. A feed
// stands on a subscription of the follower, gathers its events in batches that are worth their cost, and knows where an
// end is reached although the events before it were erased (docs/design.md#the-feed).
package feed

import (
	"context"
	"math"
	"slices"
	"sort"
	"sync/atomic"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/room"
	"github.com/turnledger/turnledger/projections"
)

// Source brings the events of a partition, each once and in order. A follower.Subscription is one.
type Source[E any] interface {
	// Next returns the next events, at least one, and blocks until there are some or ctx ends. The next call goes on.
	Next(ctx context.Context) ([]E, error)
	Close()
	// Tally counts what the reader holds of what Next has returned; nil where nobody counts it.
	Tally() *room.Tally
}

// Gaps answers whether events are missing for ever. A jetlog.Log does.
type Gaps interface {
	Still(ctx context.Context, partition int, after, upTo uint64) (bool, error)
}

// Options say how a feed gathers events. The zero value returns what comes, as it comes.
type Options struct {
	// Most bounds the events that Next returns; 0: no bound.
	Most int
	// Ahead is how many calls of the source may be done before Next asks for their events, so that both sides work at
	// the same time; by default the source is called while Next waits.
	Ahead int
	// Lag is how long an event may wait until there are Most, while Busy reports that others need the processors.
	Lag  time.Duration
	Busy func() bool
}

// NoEnd is the end of a feed that goes on for ever.
const NoEnd = math.MaxUint64

// Feed reads a partition. An event that takes a text away does not wait for others, nor do those before it. For one
// goroutine, but for Rest.
type Feed[E any] struct {
	opts  Options
	of    kind[E]
	gaps  Gaps
	in    Source[E]
	tally *room.Tally
	taken int
	// at is the position up to which all events were returned, or are missing for ever.
	at events.Position
	// rested is when the partition's rest ends, in nanoseconds of Unix time.
	rested atomic.Int64

	// calls of the source outlive those of Next: each begins with a value of wanted, and ends with one of came. asked
	// counts those that have not come.
	cancel context.CancelFunc
	wanted chan struct{}
	came   chan answer[E]
	asked  int

	// held are the events that wait, the first of them since a time by this process's clock.
	held   []E
	since  time.Time
	urgent bool
	err    error
}

type answer[E any] struct {
	events []E
	err    error
}

// kind says what a feed must know of its events.
type kind[E any] struct {
	of func(*E) (at events.Position, recorded time.Time, continues bool)
	// urgent events don't wait, and bytes are what an event takes in memory.
	urgent func(E) bool
	bytes  func(*E) int
}

const (
	// lookPause is the pause between two looks at whether the processors are still taken.
	lookPause = 50 * time.Millisecond
	// stillFor is how long nothing may come before the log is asked whether any event is left.
	stillFor = 250 * time.Millisecond
	// forever is longer than any wait.
	forever = time.Hour
)

// Judged makes a feed of judged events after a position. Its source counts their bytes.
func Judged(in Source[projections.Judged], gaps Gaps, after events.Position, o Options) *Feed[projections.Judged] {
	return newFeed(in, gaps, after, o, kind[projections.Judged]{
		of: func(e *projections.Judged) (events.Position, time.Time, bool) {
			return e.Position, e.Time, e.Continues
		},
		urgent: func(e projections.Judged) bool { return events.Withdraws(e.Type) },
		bytes:  (*projections.Judged).Size,
	})
}

// Messages makes a feed of events as the log has them after a position.
func Messages(in Source[jetlog.Message], gaps Gaps, after events.Position) *Feed[jetlog.Message] {
	return newFeed(in, gaps, after, Options{}, kind[jetlog.Message]{
		of: func(m *jetlog.Message) (events.Position, time.Time, bool) { return m.Position, m.Time, m.Continues },
		// Its tail counts what it has brought.
		urgent: func(jetlog.Message) bool { return true }, bytes: func(*jetlog.Message) int { return 0 },
	})
}

func newFeed[E any](in Source[E], gaps Gaps, after events.Position, o Options, of kind[E]) *Feed[E] {
	if o.Most == 0 {
		o.Most = math.MaxInt
	}
	if o.Ahead == 0 {
		o.Ahead = 1
	}
	f := &Feed[E]{opts: o, of: of, gaps: gaps, in: in, at: after, tally: in.Tally()}
	if f.tally == nil {
		f.tally = new(room.Room).Tally()
	}
	return f
}

// Rest has the events of the partition gather for a while.
func (f *Feed[E]) Rest(d time.Duration) { f.rested.Store(time.Now().Add(d).UnixNano()) }

// Next returns the next events up to a sequence, or none once the log has none left up to there: what was erased never
// comes. It returns no event behind the sequence. It blocks until there are events, ctx ends or the log fails, and the
// next call goes on. An error comes after the events before it.
func (f *Feed[E]) Next(ctx context.Context, upTo uint64) ([]E, error) {
	f.tally.Grow(-f.taken)
	f.taken = 0
	for quiet := f.cancel == nil; f.at.Seq < upTo; {
		f.takeIn()
		if len(f.held) == 0 && f.err != nil {
			err := f.err
			f.err = nil
			return nil, err
		}
		wait := f.wait(time.Now(), upTo)
		if wait <= 0 {
			return f.take(upTo), nil
		}
		var err error
		if quiet && len(f.held) == 0 && upTo != NoEnd {
			err = f.pass(ctx, upTo)
			quiet = false
		} else {
			quiet, err = f.await(ctx, wait)
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// pass passes over what is missing up to a sequence, if that is erased and not late.
func (f *Feed[E]) pass(ctx context.Context, upTo uint64) error {
	still, err := f.gaps.Still(ctx, f.at.Partition, f.at.Seq, upTo)
	if err == nil && still {
		f.at.Seq = upTo
	}
	return err
}

// await waits for what the source brings, and reports whether that took too long.
func (f *Feed[E]) await(ctx context.Context, wait time.Duration) (quiet bool, err error) {
	f.ask(ctx)
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case a := <-f.came:
		f.hold(a)
	case <-late.C:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
	return false, nil
}

// ask has the source called as often as may be ahead.
func (f *Feed[E]) ask(ctx context.Context) {
	if f.cancel == nil {
		f.wanted, f.came = make(chan struct{}, f.opts.Ahead), make(chan answer[E], f.opts.Ahead)
		ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx)) //nolint:gosec // Close calls it
		go f.call(ctx)
	}
	for ; f.asked < f.opts.Ahead; f.asked++ {
		f.wanted <- struct{}{}
	}
}

// call calls the source whenever that is wanted.
func (f *Feed[E]) call(ctx context.Context) {
	defer close(f.came)
	for range f.wanted {
		var a answer[E]
		a.events, a.err = f.in.Next(ctx)
		f.tally.Grow(f.bytes(a.events))
		f.came <- a
	}
}

// takeIn takes in what has come meanwhile, for a batch at most.
func (f *Feed[E]) takeIn() {
	for len(f.held) < f.opts.Most && f.asked > 0 && f.err == nil {
		select {
		case a := <-f.came:
			f.hold(a)
		default:
			return
		}
	}
}

// hold takes in what a call has brought, but for events that were passed since: they have been erased.
func (f *Feed[E]) hold(a answer[E]) {
	f.asked--
	f.err = a.err
	more := a.events[f.upTo(a.events, f.at.Seq):]
	f.tally.Grow(f.bytes(more) - f.bytes(a.events))
	if len(f.held) == 0 {
		f.held, f.since = slices.Clip(more), time.Now() // others may have them, too
	} else {
		f.held = append(f.held, more...)
	}
	f.urgent = f.urgent || slices.ContainsFunc(more, f.of.urgent)
}

// wait returns how long what is held waits before the next look at it, 0 if it waits no longer.
func (f *Feed[E]) wait(now time.Time, upTo uint64) time.Duration {
	switch {
	case len(f.held) == 0 && upTo == NoEnd:
		return forever
	case len(f.held) == 0:
		return stillFor
	case f.urgent, f.err != nil, len(f.held) >= f.opts.Most, f.tally.Left() <= 0:
		return 0
	}
	last, _, _ := f.of.of(&f.held[len(f.held)-1])
	if last.Seq >= upTo {
		return 0
	}
	if rest := time.Duration(f.rested.Load() - now.UnixNano()); rest > 0 {
		return rest
	}
	_, recorded, _ := f.of.of(&f.held[0])
	left := f.opts.Lag - max(now.Sub(recorded), now.Sub(f.since)) // the log's clock may be ahead
	if f.opts.Lag == 0 || left <= 0 || !f.opts.Busy() {
		return 0
	}
	return min(left, lookPause)
}

// take takes a batch from what is held, and no link without its turn unless they are on two sides of the end.
func (f *Feed[E]) take(upTo uint64) []E {
	end := f.upTo(f.held, upTo)
	n := min(end, f.opts.Most)
	if n > 0 && n < end {
		if _, _, continues := f.of.of(&f.held[n-1]); continues {
			n++
		}
	}
	if n == 0 {
		f.at.Seq = upTo // only what is behind it is left
		return nil
	}
	batch := slices.Clip(f.held[:n])
	f.at, _, _ = f.of.of(&batch[n-1])
	f.taken = f.bytes(batch)
	if f.held = f.held[n:]; len(f.held) == 0 {
		f.held = nil // what is held next does not keep the batch's memory
	}
	f.urgent = f.urgent && slices.ContainsFunc(f.held, f.of.urgent)
	return batch
}

// upTo returns how many of some events are not behind a sequence.
func (f *Feed[E]) upTo(all []E, seq uint64) int {
	return sort.Search(len(all), func(i int) bool { at, _, _ := f.of.of(&all[i]); return at.Seq > seq })
}

func (f *Feed[E]) bytes(all []E) (n int) {
	for i := range all {
		n += f.of.bytes(&all[i])
	}
	return n
}

// Close ends the feed and closes its source. No call of Next may run.
func (f *Feed[E]) Close() {
	if f.cancel != nil {
		f.cancel()
		close(f.wanted)
		for range f.came { // what comes late is dropped
		}
	}
	f.in.Close()
}
