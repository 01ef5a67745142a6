package rebuild

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
)

// filler brings one partition of the log into a sink. What comes next is read and
// judged while the sink applies what came before.
type filler struct {
	*progress
	log    *jetlog.Log
	sink   projections.Sink
	cfg    Config
	tail   *jetlog.Tail
	judge  *projections.Judge
	hold   *desk.Hold // nil where nothing is rebuilt
	at     projections.Checkpoint
	judged chan []projections.Judged
	// free are parts that were applied, to be filled again.
	free chan []projections.Judged
	// run is what is applied at once.
	run []projections.Judged
	// rest of the last run, after a position that was to be reached.
	rest []projections.Judged
}

// ahead is into how many parts what is read ahead of one Apply is divided: a little in
// many hands, and not a whole batch in each.
const ahead = 10

// part is how many events are read at once.
func (c Config) part() int { return max(c.MaxBatch/ahead, 1) }

// newFiller claims the partition of the sink; the log is opened after where it
// begins.
func newFiller(ctx context.Context, log *jetlog.Log, sink projections.Sink, cfg Config, p *progress) (*filler, error) {
	cp, err := sink.Claim(ctx, p.partition)
	if err != nil {
		return nil, err
	}
	cp.Partition, cp.Created = p.partition, log.Created(p.partition)
	f := &filler{progress: p, log: log, sink: sink, cfg: cfg, at: cp, judged: make(chan []projections.Judged, ahead), free: make(chan []projections.Judged, ahead)}
	if cfg.queue != nil {
		err := answered(ctx, func() (err error) {
			f.hold, err = cfg.Desk.Own(ctx, sink.Name(), cp)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if err := f.start(ctx); err != nil {
		return nil, err
	}
	f.judge = projections.NewJudge(log, cfg.Rules, f.at.Seq)
	f.began(f.at.Seq)
	return f, nil
}

// open is to be followed by read.
func (f *filler) open(ctx context.Context) (err error) {
	f.tail, err = f.log.Tail(ctx, f.partition, f.at.Seq, jetlog.TailOptions{MaxBatch: f.cfg.part(), Decode: true})
	return err
}

// start moves the checkpoint to where the projection begins.
func (f *filler) start(ctx context.Context) error {
	if f.cfg.Start == nil {
		return nil
	}
	var seq uint64
	err := answered(ctx, func() (err error) {
		seq, err = f.cfg.Start(ctx, f.partition)
		return err
	})
	if err != nil || seq == 0 {
		return err
	}
	return f.pass(ctx, seq)
}

// read judges the log ahead of catchUp until ctx ends.
func (f *filler) read(ctx context.Context) error {
	defer f.tail.Close()
	for {
		batch, err := f.tail.Next(ctx)
		if err != nil {
			return err
		}
		judged := f.part()
		for _, m := range batch {
			e, err := f.judge.Judge(ctx, m.Recorded())
			if err != nil {
				return err
			}
			if e.Fact != nil {
				e.Body = nil // needed of what states no fact
			}
			judged = append(judged, e)
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
	var head events.Position
	err := answered(ctx, func() (err error) {
		head, err = f.log.Head(ctx, f.partition)
		return err
	})
	if err != nil {
		return err
	}
	return f.reach(ctx, head.Seq)
}

// answered asks the log until it answers, as a tail does: an election is no reason to begin again.
func answered(ctx context.Context, ask func() error) error {
	for {
		if err := ask(); !errors.Is(err, jetlog.ErrUnavailable) || errors.Is(err, jetlog.ErrStream) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(quiet):
		}
	}
}

// reach applies the log up to a sequence, and nothing after it.
func (f *filler) reach(ctx context.Context, seq uint64) error {
	f.aim(seq)
	still := time.NewTimer(quiet)
	defer still.Stop()
	for f.at.Seq < seq {
		run := f.rest
		if len(run) == 0 {
			still.Reset(quiet)
			select {
			case part := <-f.judged:
				// What was read ahead and passed over was erased meanwhile.
				run = f.more(part)
				run = run[sort.Search(len(run), func(i int) bool { return run[i].Position.Seq > f.at.Seq }):]
				if len(run) == 0 {
					continue
				}
			case <-still.C:
				// Of erased events nothing comes.
				var none bool
				err := answered(ctx, func() (err error) {
					none, err = f.log.Still(ctx, f.partition, f.at.Seq, seq)
					return err
				})
				switch {
				case err != nil:
					return err
				case none:
					return f.pass(ctx, seq)
				}
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		n := sort.Search(len(run), func(i int) bool { return run[i].Position.Seq > seq })
		if f.rest = run[n:]; n == 0 {
			return f.pass(ctx, seq)
		}
		if err := f.apply(ctx, run[:n]); err != nil {
			return err
		}
	}
	return nil
}

// pass moves the checkpoint over events that were erased: who compares checkpoints would wait for them. The event that was
// applied last stays named: in another stream another one would stand where none does here.
func (f *filler) pass(ctx context.Context, seq uint64) error {
	to := f.at
	to.Seq = seq
	if err := f.sink.Apply(ctx, projections.Batch{From: f.at, To: to}); err != nil {
		return err
	}
	f.at = to
	f.reached(seq, 0)
	return nil
}

// part gives an empty one.
func (f *filler) part() []projections.Judged {
	select {
	case p := <-f.free:
		return p
	default:
		return make([]projections.Judged, 0, f.cfg.part())
	}
}

// more makes a run of a part and of what has been judged meanwhile, up to a batch.
func (f *filler) more(part []projections.Judged) []projections.Judged {
	f.run = f.run[:0]
	for {
		f.run = append(f.run, part...)
		clear(part)
		select {
		case f.free <- part[:0]:
		default:
		}
		if len(f.run)+f.cfg.part() > f.cfg.MaxBatch {
			return f.run
		}
		select {
		case part = <-f.judged:
		default:
			return f.run
		}
	}
}

// apply commits a run of events; one that can't be applied is found by halving.
func (f *filler) apply(ctx context.Context, run []projections.Judged) error {
	last := run[len(run)-1]
	to := f.at
	to.Seq, to.EventID = last.Position.Seq, last.ID
	err := f.sink.Apply(ctx, projections.Batch{From: f.at, To: to, Events: run})
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
		return f.leaveOut(ctx, projections.Batch{From: f.at, To: to, Events: run}, err)
	}
	if err := f.apply(ctx, run[:len(run)/2]); err != nil {
		return err
	}
	return f.apply(ctx, run[len(run)/2:])
}

// leaveOut passes over an event that can't be applied where an operator has said so of
// the served generation, and keeps that letter; every other one ends the rebuild.
func (f *filler) leaveOut(ctx context.Context, b projections.Batch, why error) error {
	e := &b.Events[0]
	if f.cfg.queue == nil {
		return &Stopped{e.Position, why}
	}
	drop, err := f.cfg.queue.Dropped(ctx, e.Position)
	if err != nil {
		return err
	}
	if drop == nil {
		return &Stopped{e.Position, why}
	}
	dead := projections.NewDeadLetter(f.sink.Name(), e, why.Error(), time.Now())
	dead.Dropped = drop
	if err := f.hold.Keep(ctx, f.at.Created, dead); err != nil {
		return err
	}
	if err := f.sink.Apply(ctx, projections.Batch{From: b.From, To: b.To, Parked: b.Events}); err != nil {
		return err
	}
	f.at = b.To
	f.reached(e.Position.Seq, 1)
	return nil
}
