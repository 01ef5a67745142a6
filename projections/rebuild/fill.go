package rebuild

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
	"github.com/turnledger/turnledger/projections/feed"
	"github.com/turnledger/turnledger/projections/follower"
)

// fill applies one partition of the log to a sink. It reads and judges the next batch while the sink applies the
// current one.
type fill struct {
	*progress
	projections.Intake
	log *jetlog.Log
	in  *feed.Feed[projections.Judged]
}

// ahead is the number of parts into which the events that are read ahead of one Apply are divided, so that both sides
// pass small parts and not whole batches.
const ahead = 10

// claim claims the partition of the sink, and opens the log at the claimed checkpoint; the caller closes the feed.
// letters are the dead letters of the served generation; nil if nothing is rebuilt.
func claim(
	ctx context.Context, log *jetlog.Log, from *follower.Follower, sink projections.Sink, cfg Config,
	letters *desk.Queue, p *progress,
) (*fill, error) {
	cp, err := sink.Claim(ctx, p.partition)
	if err != nil {
		return nil, err
	}
	cp.Partition, cp.Created = p.partition, log.Created(p.partition)
	f := &fill{progress: p, log: log}
	f.Intake = projections.Intake{Sink: sink, At: cp, Park: stop, Done: func(b projections.Batch) {
		f.reached(b.To.Seq, len(b.Events)+len(b.Parked))
	}}
	if letters != nil {
		claim, err := answered(ctx, func() (*desk.Claim, error) { return cfg.Desk.ClaimLetters(ctx, sink.Name(), cp) })
		if err != nil {
			return nil, err
		}
		f.Park = leaveOut(letters, claim, sink.Name())
	}
	if cfg.Start != nil {
		seq, err := answered(ctx, func() (uint64, error) { return cfg.Start(ctx, p.partition) })
		if err == nil && seq != 0 {
			err = f.Pass(ctx, seq)
		}
		if err != nil {
			return nil, err
		}
	}
	f.began(f.At.Seq)
	most := max(cfg.MaxBatch/ahead, 1)
	f.in = feed.Judged(patiently{from.Judged(p.partition, f.At.Seq, most)}, patient{log}, f.At.Position(),
		feed.Options{Most: cfg.MaxBatch, Ahead: ahead})
	return f, nil
}

// stop ends the work at an event that can't be applied.
func stop(_ context.Context, b projections.Batch, why error) error {
	return fmt.Errorf("the rebuild stopped at %s, which can't be applied: %w", b.Events[0].Position, why)
}

// leaveOut skips an event that can't be applied if an operator has dropped it in the served generation, and keeps that
// letter. Any other such event ends the rebuild.
func leaveOut(
	letters *desk.Queue, claim *desk.Claim, name string,
) func(context.Context, projections.Batch, error) error {
	return func(ctx context.Context, b projections.Batch, why error) error {
		drop, err := letters.Dropped(ctx, b.Events[0].Position)
		if err != nil {
			return err
		}
		if drop == nil {
			return stop(ctx, b, why)
		}
		dead := projections.NewDeadLetter(name, &b.Events[0], why.Error(), time.Now())
		dead.Dropped = drop
		return claim.Keep(ctx, b.From.Created, dead)
	}
}

// askAgain is the pause before a question that the log did not answer is asked again.
const askAgain = 250 * time.Millisecond

// catchUp applies all that the log holds now.
func (f *fill) catchUp(ctx context.Context) error {
	head, err := answered(ctx, func() (events.Position, error) { return f.log.Head(ctx, f.partition) })
	if err != nil {
		return err
	}
	return f.reach(ctx, head.Seq)
}

// answered repeats a question to the log until the log answers, so that an election does not end the rebuild.
func answered[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	for {
		answer, err := ask()
		if !errors.Is(err, jetlog.ErrUnavailable) || errors.Is(err, jetlog.ErrStream) {
			return answer, err
		}
		if !pause.For(ctx, askAgain) {
			return answer, ctx.Err()
		}
	}
}

// reach applies the log up to a sequence, and nothing after it.
func (f *fill) reach(ctx context.Context, seq uint64) error {
	f.aim(seq)
	for f.At.Seq < seq {
		run, err := f.in.Next(ctx, seq)
		switch {
		case err != nil:
			return err
		case len(run) == 0:
			return f.Pass(ctx, seq)
		}
		if err := f.Apply(ctx, run); errors.Is(err, projections.ErrFenced) {
			return fmt.Errorf("%w: another rebuild has begun, or this one stood still for too long: run it again", err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// patiently reads on until the log answers.
type patiently struct {
	*follower.Subscription[projections.Judged]
}

// Next implements feed.Source.
func (s patiently) Next(ctx context.Context) ([]projections.Judged, error) {
	return answered(ctx, func() ([]projections.Judged, error) { return s.Subscription.Next(ctx) })
}

// patient asks until the log answers.
type patient struct{ *jetlog.Log }

// Still implements feed.Gaps.
func (l patient) Still(ctx context.Context, partition int, after, upTo uint64) (bool, error) {
	return answered(ctx, func() (bool, error) { return l.Log.Still(ctx, partition, after, upTo) })
}
