package rebuild

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
	"github.com/turnledger/turnledger/projections/follower"
)

// filler applies one partition of the log to a sink. It reads and judges the next batch while the sink applies the
// current one.
type filler struct {
	*progress
	projections.Intake
	log    *jetlog.Log
	cfg    Config
	judged chan []projections.Judged
	// run is the events of the next Apply.
	run []projections.Judged
	// beyondReach is the end of the last run, behind the position that was to be reached.
	beyondReach []projections.Judged
}

// ahead is the number of parts into which the events that are read ahead of one Apply are divided, so that both sides
// pass small parts and not whole batches.
const ahead = 10

// most returns how many events are read at once.
func (f *filler) most() int { return max(f.cfg.MaxBatch/ahead, 1) }

// newFiller claims the partition of the sink, and opens the log at the claimed checkpoint. letters are the dead letters
// of the served generation; nil if nothing is rebuilt.
func newFiller(
	ctx context.Context, log *jetlog.Log, sink projections.Sink, cfg Config, letters *desk.Queue, p *progress,
) (*filler, error) {
	cp, err := sink.Claim(ctx, p.partition)
	if err != nil {
		return nil, err
	}
	cp.Partition, cp.Created = p.partition, log.Created(p.partition)
	f := &filler{
		progress: p, log: log, cfg: cfg,
		judged: make(chan []projections.Judged, ahead),
	}
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

// read judges the log ahead of reach until ctx ends.
func (f *filler) read(ctx context.Context, in *follower.Subscription[projections.Judged]) error {
	defer in.Close()
	for {
		batch, err := answered(ctx, func() ([]projections.Judged, error) { return in.Next(ctx) })
		if err != nil {
			return err
		}
		select {
		case f.judged <- batch:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// askAgain is the pause before a question that the log did not answer is asked again.
const askAgain = 250 * time.Millisecond

// catchUp applies all that the log holds now.
func (f *filler) catchUp(ctx context.Context) error {
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
func (f *filler) reach(ctx context.Context, seq uint64) error {
	f.aim(seq)
	for f.At.Seq < seq {
		run := f.beyondReach
		if len(run) == 0 {
			var err error
			at := events.Position{Partition: f.partition, Seq: f.At.Seq}
			if run, err = jetlog.Until(ctx, patient{f.log}, f, at, seq); err != nil {
				return err
			}
			if len(run) == 0 {
				return f.Pass(ctx, seq)
			}
		}
		n := sort.Search(len(run), func(i int) bool { return run[i].Position.Seq > seq })
		if f.beyondReach = run[n:]; n == 0 {
			return f.Pass(ctx, seq)
		}
		if err := f.Apply(ctx, run[:n]); errors.Is(err, projections.ErrFenced) {
			return fmt.Errorf("%w: another rebuild has begun, or this one stood still for too long: run it again", err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// Next returns what was judged ahead, but for events that were passed since: they have been erased.
func (f *filler) Next(ctx context.Context) ([]projections.Judged, error) {
	for {
		select {
		case part := <-f.judged:
			run := f.more(part)
			run = run[sort.Search(len(run), func(i int) bool { return run[i].Position.Seq > f.At.Seq }):]
			if len(run) > 0 {
				return run, nil
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// patient asks until the log answers.
type patient struct{ *jetlog.Log }

// Still implements jetlog.Gaps.
func (l patient) Still(ctx context.Context, partition int, after, upTo uint64) (bool, error) {
	return answered(ctx, func() (bool, error) { return l.Log.Still(ctx, partition, after, upTo) })
}

// more makes a run of up to a batch: a part, and the parts that have been judged meanwhile.
func (f *filler) more(part []projections.Judged) []projections.Judged {
	f.run = f.run[:0]
	for {
		f.run = append(f.run, part...)
		if len(f.run)+f.most() > f.cfg.MaxBatch {
			return f.run
		}
		select {
		case part = <-f.judged:
		default:
			return f.run
		}
	}
}
