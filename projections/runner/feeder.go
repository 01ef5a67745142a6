package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/pubsub"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
)

// feed runs one partition until something breaks off.
func (r *Runner) feed(ctx context.Context, k int) error {
	f := &feeder{Runner: r, partition: k}
	if err := f.claim(ctx); err != nil {
		return err
	}
	tail, err := r.log.Tail(ctx, k, f.at.Seq, jetlog.TailOptions{MaxBatch: r.cfg.MaxBatch, Decode: true})
	if err != nil {
		return err
	}
	sub := pubsub.NewBatchSubscriber(tail)
	defer func() { _ = sub.Close() }()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	// A panic is a failure like any other: it is seen by what stands outside of the recoverer.
	router.AddMiddleware(f.observed, middleware.Recoverer)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.stop = cancel
	router.AddConsumerHandler(r.proj.Name(), events.StreamName(k), sub, func(m *message.Message) error {
		return f.handleBatch(m.Context(), pubsub.MessageBatch(m))
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
	switch {
	case err != nil:
		return err
	case f.fatal != nil:
		return f.fatal
	case lost != nil:
		return lost
	}
	return errors.New("the tail ended")
}

// watch looks from time to time whether the store still has what was committed: one
// that was emptied, or set back to a copy, would else be noticed by the next event
// only. It returns nil when ctx ends.
func (f *feeder) watch(ctx context.Context) error {
	if f.task { // what was taken is not done yet
		return nil
	}
	look := time.NewTicker(2 * f.cfg.Beat)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
		before := f.committed.Load()
		at, err := f.proj.Applied(ctx, f.partition)
		if err != nil {
			continue // the next batch tells
		}
		if at.Seq < before {
			lost := events.Position{Partition: f.partition, Seq: before}
			return fmt.Errorf("the store has lost what stood at %s: it is filled again", lost)
		}
	}
}

// feeder is the life of one partition between a claim and a break.
type feeder struct {
	*Runner
	partition int
	at        projections.Checkpoint
	judge     *projections.Judge
	stop      context.CancelFunc
	// hold is the right to park events; nil for a task.
	hold  *desk.Hold
	stale bool
	fatal error
	// committed is the sequence of the checkpoint that the store must have.
	committed atomic.Uint64
}

// claim takes the partition over and holds the stream against the checkpoint.
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
	f.at = cp
	f.committed.Store(cp.Seq)
	if err := f.own(ctx); err != nil {
		return err
	}
	if err := f.start(ctx); err != nil {
		return err
	}
	f.judge, f.stale = projections.NewJudge(f.log, f.cfg.Rules, f.at.Seq), false
	f.parts[f.partition].reached(f.at.Seq, 0)
	return nil
}

// own takes over the dead letters of the partition.
func (f *feeder) own(ctx context.Context) (err error) {
	if f.task {
		return nil
	}
	if f.hold, err = f.cfg.Desk.Own(ctx, f.proj.Name(), f.at); err != nil || f.cfg.Carry == nil {
		return err
	}
	return f.cfg.Carry(ctx, f.partition, f.keep)
}

func (f *feeder) keep(ctx context.Context, dead projections.DeadLetter) error {
	return f.hold.Keep(ctx, f.at.Created, dead)
}

// start moves the checkpoint of a new partition to where the projection begins.
func (f *feeder) start(ctx context.Context) error {
	if f.at.Seq > 0 || f.cfg.Start == nil {
		return nil
	}
	to := f.at
	var err error
	if to.Seq, err = f.cfg.Start(ctx, f.partition); err != nil || to.Seq == 0 {
		return err
	}
	if err := f.proj.Apply(ctx, projections.Batch{From: f.at, To: to}); err != nil {
		return err
	}
	f.at = to
	f.committed.Store(to.Seq)
	return nil
}

// observed is the middleware that notes how a batch went. An error makes the subscriber emit the batch again,
// unless it ends the feeding.
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
			f.cfg.Metrics.failed(f.proj.Name())
			f.cfg.Logger.Warn("a batch is tried again",
				"projection", f.proj.Name(), "position", f.at.Position(), "err", err)
		}
		return out, err
	}
}

func (f *feeder) handleBatch(ctx context.Context, batch []jetlog.Message) error {
	if f.stale {
		// What the last attempt did is unknown: only the stored checkpoint tells.
		before := f.at
		if err := f.claim(ctx); err != nil {
			return err
		}
		if f.at.Seq < before.Seq {
			return fmt.Errorf("%w: the checkpoint went back to %s", projections.ErrFenced, f.at.Position())
		}
		// Who was fenced in between holds a batch that may be no more what the log has.
		if f.at.Epoch > before.Epoch+1 {
			return projections.ErrFenced
		}
	}
	// Until all is applied, a panic included, nothing of what was judged stands.
	f.stale = true
	judged, err := f.judgeAll(ctx, batch)
	if err == nil {
		err = f.apply(ctx, judged)
	}
	if err != nil {
		return err
	}
	f.stale = false
	f.parts[f.partition].set(live, nil)
	return nil
}

func (f *feeder) judgeAll(ctx context.Context, batch []jetlog.Message) ([]projections.Judged, error) {
	judged := make([]projections.Judged, 0, len(batch))
	for _, m := range batch {
		if m.Position.Seq <= f.at.Seq {
			continue
		}
		j, err := f.judge.Judge(ctx, m.Recorded())
		if err != nil {
			return nil, err
		}
		judged = append(judged, j)
	}
	return judged, nil
}

// apply commits a run of events. One that can't be applied is found by halving the
// run, and parked.
func (f *feeder) apply(ctx context.Context, run []projections.Judged) error {
	if len(run) == 0 {
		return nil
	}
	b := f.batch(run)
	ctx, ended := f.span(ctx, run)
	// What has begun is brought to its end when the runner stops.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyDeadline)
	defer cancel()
	err := f.proj.Apply(ctx, b)
	ended(err)
	switch {
	case err == nil:
		f.done(b)
		return nil
	case f.task || !projections.IsPermanent(err):
		return err
	case len(run) > 1:
		if err := f.apply(ctx, run[:len(run)/2]); err != nil {
			return err
		}
		return f.apply(ctx, run[len(run)/2:])
	}
	return f.park(ctx, b, err)
}

// park keeps the one event of a batch as a dead letter, and passes it by once the letter is durable.
func (f *feeder) park(ctx context.Context, b projections.Batch, why error) error {
	e := &b.Events[0]
	f.cfg.Logger.Error("an event can't be applied and goes to the dead letters; "+
		"look at it with: turnledger deadletters list",
		"projection", f.proj.Name(), "position", e.Position, "event_type", e.Type, "err", why)
	if err := f.keep(ctx, projections.NewDeadLetter(f.proj.Name(), e, why.Error(), time.Now())); err != nil {
		return err
	}
	if err := f.proj.Apply(ctx, projections.Batch{From: b.From, To: b.To, Parked: b.Events}); err != nil {
		return err
	}
	f.cfg.Metrics.parked(f.proj.Name())
	f.done(b)
	return nil
}

const applyDeadline = 30 * time.Second

func (f *feeder) batch(run []projections.Judged) projections.Batch {
	last := run[len(run)-1]
	to := f.at
	to.Seq, to.EventID = last.Position.Seq, last.ID
	return projections.Batch{From: f.at, To: to, Events: run}
}

func (f *feeder) done(b projections.Batch) {
	f.at = b.To
	f.committed.Store(b.To.Seq)
	f.parts[f.partition].reached(b.To.Seq, len(b.Events))
	f.cfg.Metrics.applied(f.proj.Name(), b.Events)
}
