package rebuild

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
)

// filler brings one partition into the generation. What comes next is read and
// judged while the generation applies what came before.
type filler struct {
	*Rebuild
	*progress
	tail   *jetlog.Tail
	judge  *projections.Judge
	at     projections.Checkpoint
	judged chan []projections.Judged
}

// newFiller claims the partition of the generation and opens the log after where it
// begins.
func (r *Rebuild) newFiller(ctx context.Context, k int) (*filler, error) {
	cp, err := r.gen.Claim(ctx, k)
	if err != nil {
		return nil, err
	}
	cp.Partition, cp.Created = k, r.log.Created(k)
	f := &filler{Rebuild: r, progress: r.parts[k], at: cp, judged: make(chan []projections.Judged)}
	if err := f.start(ctx); err != nil {
		return nil, err
	}
	f.judge = projections.NewJudge(r.log, r.cfg.Rules, f.at.Seq)
	f.tail, err = r.log.Tail(ctx, k, f.at.Seq, jetlog.TailOptions{MaxBatch: r.cfg.MaxBatch, Decode: true})
	f.began(f.at.Seq)
	return f, err
}

// start moves the checkpoint to where the projection begins.
func (f *filler) start(ctx context.Context) error {
	if f.cfg.Start == nil {
		return nil
	}
	seq, err := f.cfg.Start(ctx, f.partition)
	if err != nil || seq == 0 {
		return err
	}
	to := f.at
	to.Seq = seq
	if err := f.gen.Apply(ctx, projections.Batch{From: f.at, To: to}); err != nil {
		return err
	}
	f.at = to
	return nil
}

// read judges the log ahead of catchUp until ctx ends.
func (f *filler) read(ctx context.Context) error {
	defer f.tail.Close()
	for {
		batch, err := f.tail.Next(ctx)
		if err != nil {
			return err
		}
		judged := make([]projections.Judged, len(batch))
		for i, m := range batch {
			if judged[i], err = f.judge.Judge(ctx, m.Recorded()); err != nil {
				return err
			}
		}
		select {
		case f.judged <- judged:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// quiet is how long nothing comes before it is asked whether the head was erased.
const quiet = 250 * time.Millisecond

// catchUp applies all that the log holds now.
func (f *filler) catchUp(ctx context.Context) error {
	head, err := f.log.Head(ctx, f.partition)
	if err != nil {
		return err
	}
	f.aim(head.Seq)
	still := time.NewTimer(quiet)
	defer still.Stop()
	for f.at.Seq < head.Seq {
		still.Reset(quiet)
		select {
		case run := <-f.judged:
			if err := f.apply(ctx, run); err != nil {
				return err
			}
		case <-still.C:
			// Of an erased event nothing comes.
			if _, found, err := f.log.At(ctx, head); err != nil || !found {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// apply commits a run of events; one that can't be applied is found by halving.
func (f *filler) apply(ctx context.Context, run []projections.Judged) error {
	last := run[len(run)-1]
	to := f.at
	to.Seq, to.EventID = last.Position.Seq, last.ID
	err := f.gen.Apply(ctx, projections.Batch{From: f.at, To: to, Events: run})
	switch {
	case err == nil:
		f.at = to
		f.reached(to.Seq, len(run))
		return nil
	case errors.Is(err, projections.ErrFenced):
		return fmt.Errorf("%w: another rebuild has begun, or this one stood still for too long: run it again", err)
	case !projections.IsPermanent(err):
		return err
	case len(run) == 1:
		return &Stopped{last.Position, err}
	}
	if err := f.apply(ctx, run[:len(run)/2]); err != nil {
		return err
	}
	return f.apply(ctx, run[len(run)/2:])
}

// position that was reached.
func (f *filler) position() events.Position { return f.at.Position() }
