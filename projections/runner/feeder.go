package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog/pubsub"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
	"github.com/turnledger/turnledger/projections/feed"
)

// feed runs one partition until an error ends it.
func (r *Runner) feed(ctx context.Context, k int) error {
	f := &feeder{Runner: r, partition: k}
	f.Sink, f.Done = bounded{r.proj, r}, f.done
	if !r.task {
		f.Park = f.park
	}
	if err := f.claim(ctx); err != nil {
		return err
	}
	in := feed.Judged(r.cfg.Follower.Judged(k, f.At.Seq, r.cfg.MaxBatch), r.log, f.At.Position(), feed.Options{
		Most: r.cfg.MaxBatch, Lag: r.cfg.Lag, Busy: r.cfg.Busy})
	sub := pubsub.NewBatchSubscriber(endless{in})
	defer func() { _ = sub.Close() }()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	// The recoverer turns a panic into an error, and observed, outside it, sees that error like any other.
	router.AddMiddleware(f.observed, middleware.Recoverer)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.stop = cancel
	router.AddConsumerHandler(r.proj.Name(), events.StreamName(k), sub, func(m *message.Message) error {
		batch := pubsub.BatchOf[projections.Judged](m)
		if err := f.handleBatch(m.Context(), batch); err != nil {
			return err
		}
		if len(batch) < fullFrom {
			in.Rest(r.cfg.Rest)
		}
		return nil
	})
	r.parts[k].set(live, nil)
	var lost error
	var watching sync.WaitGroup
	watching.Go(func() {
		if lost = f.watch(ctx); lost != nil {
			cancel()
		}
	})
	err = router.Run(ctx)
	cancel()
	watching.Wait()
	_ = sub.Close()
	return cmp.Or(err, f.fatal, lost, sub.Err(), errors.New("the log ended"))
}

// endless is a feed without an end, for Watermill.
type endless struct {
	*feed.Feed[projections.Judged]
}

// Next implements pubsub.Batches.
func (e endless) Next(ctx context.Context) ([]projections.Judged, error) {
	return e.Feed.Next(ctx, feed.NoEnd)
}

// watch checks from time to time that the store answers, and still has what was committed. Without it, a store that is
// away, was emptied or restored from a copy would be noticed only at the next event. It returns nil when ctx ends.
func (f *feeder) watch(ctx context.Context) error {
	if f.task { // a task's progress is behind what it has taken
		return nil
	}
	for pause.For(ctx, 2*f.cfg.Beat) {
		before := f.committed.Load()
		at, err := f.applied(ctx)
		if ctx.Err() == nil {
			f.parts[f.partition].looked(err)
		}
		if err != nil {
			continue
		}
		if at.Seq < before {
			lost := events.Position{Partition: f.partition, Seq: before}
			return fmt.Errorf("the store has lost what stood at %s: it is filled again", lost)
		}
	}
	return nil
}

// lookDeadline bounds one look at a store.
const lookDeadline = 10 * time.Second

func (f *feeder) applied(ctx context.Context) (events.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, lookDeadline)
	defer cancel()
	return f.proj.Applied(ctx, f.partition)
}

// feeder runs one partition from a claim to the next failure.
type feeder struct {
	*Runner
	projections.Intake
	partition int
	stop      context.CancelFunc
	// hold is the right to park events; nil for a task.
	letterClaim *desk.Claim
	stale       bool
	fatal       error
	// committed is the sequence that the store's checkpoint must have.
	committed atomic.Uint64
}

// claim takes the partition over, and fails if the checkpoint belongs to another stream.
func (f *feeder) claim(ctx context.Context) error {
	cp, err := f.proj.Claim(ctx, f.partition)
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	cp.Partition = f.partition
	if err := projections.SameStream(ctx, f.log, cp); err != nil {
		return err
	}
	cp.Created = f.log.Created(f.partition)
	f.At = cp
	f.committed.Store(cp.Seq)
	if err := f.claimLetters(ctx); err != nil {
		return err
	}
	if err := f.start(ctx); err != nil {
		return err
	}
	f.stale = false
	f.parts[f.partition].reached(f.At.Seq, 0)
	return nil
}

// claimLetters takes over the dead letters of the partition.
func (f *feeder) claimLetters(ctx context.Context) (err error) {
	if f.task {
		return nil
	}
	f.letterClaim, err = f.cfg.Desk.ClaimLetters(ctx, f.proj.Name(), f.At)
	return err
}

// start moves the checkpoint of a new partition to the sequence at which the projection begins.
func (f *feeder) start(ctx context.Context) error {
	if f.At.Seq > 0 || f.cfg.Start == nil {
		return nil
	}
	seq, err := f.cfg.Start(ctx, f.partition)
	if err != nil || seq == 0 {
		return err
	}
	return f.Pass(ctx, seq)
}

// observed is the middleware that records the outcome of a batch. After an error the subscriber emits the batch again,
// unless the error ends the feeding.
func (f *feeder) observed(next message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		out, err := next(m)
		switch {
		case err == nil:
		case errors.Is(err, projections.ErrFenced), errors.Is(err, projections.ErrStream):
			f.fatal = err
			f.stop()
		default:
			f.parts[f.partition].set(retrying, err)
			f.cfg.Metrics.failures.WithLabelValues(f.proj.Name()).Inc()
			f.cfg.Logger.Warn("a batch is tried again",
				"projection", f.proj.Name(), "position", f.At.Position(), "err", err)
		}
		return out, err
	}
}

func (f *feeder) handleBatch(ctx context.Context, batch []projections.Judged) error {
	if f.stale {
		// The outcome of the last attempt is unknown: only the stored checkpoint shows it.
		before := f.At
		if err := f.claim(ctx); err != nil {
			return err
		}
		if f.At.Seq < before.Seq {
			return fmt.Errorf("%w: the checkpoint went back to %s", projections.ErrFenced, f.At.Position())
		}
		// If another runner claimed the partition in between, this batch may no longer match the log.
		if f.At.Epoch > before.Epoch+1 {
			return projections.ErrFenced
		}
	}
	// Verdicts count only once the whole batch is applied. After an error or a panic the judge's states are stale.
	f.stale = true
	applied := sort.Search(len(batch), func(i int) bool { return batch[i].Position.Seq > f.At.Seq })
	if err := f.Apply(ctx, batch[applied:]); err != nil {
		return err
	}
	f.stale = false
	f.parts[f.partition].set(live, nil)
	return nil
}

// fullFrom is how many events make a batch that needs no rest.
const fullFrom = 256

// bounded is a projection whose batches are brought to their end when the runner stops.
type bounded struct {
	projections.Sink
	runner *Runner
}

const applyDeadline = 30 * time.Second

// Apply implements projections.Sink.
func (s bounded) Apply(ctx context.Context, b projections.Batch) error {
	ctx, ended := s.runner.span(ctx, b.Events)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyDeadline)
	defer cancel()
	err := s.Sink.Apply(ctx, b)
	ended(err)
	return err
}

// park keeps the one event of a batch as a dead letter, durably.
func (f *feeder) park(ctx context.Context, b projections.Batch, why error) error {
	e := &b.Events[0]
	f.cfg.Logger.Error("an event can't be applied and goes to the dead letters; "+
		"look at it with: turnledger deadletters list",
		"projection", f.proj.Name(), "position", e.Position, "event_type", e.Type, "err", why)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyDeadline)
	defer cancel()
	dead := projections.NewDeadLetter(f.proj.Name(), e, why.Error(), time.Now())
	return f.letterClaim.Keep(ctx, f.At.Created, dead)
}

func (f *feeder) done(b projections.Batch) {
	f.committed.Store(b.To.Seq)
	if len(b.Parked) > 0 {
		f.cfg.Metrics.dead.WithLabelValues(f.proj.Name()).Add(float64(len(b.Parked)))
	}
	f.parts[f.partition].reached(b.To.Seq, len(b.Events)+len(b.Parked))
	f.cfg.Metrics.applied(f.proj.Name(), b.Events)
	f.cfg.Metrics.applied(f.proj.Name(), b.Parked)
}
