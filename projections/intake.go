package projections

import "context"

// Intake applies judged events of one partition to a sink, in order, and keeps the checkpoint.
type Intake struct {
	Sink Sink
	At   Checkpoint
	// Park is called with a batch of one event that can't be applied. If it returns nil, it has kept a dead letter, and
	// the event is skipped. With a nil Park no event is skipped.
	Park func(ctx context.Context, b Batch, why error) error
	// Done is called after each commit.
	Done func(b Batch)
}

// Apply commits a run of events. It finds an event that can't be applied by cutting the run in two, and cuts between
// the events of one change only if nothing else is left: then one of them can't be applied.
func (i *Intake) Apply(ctx context.Context, run []Judged) error {
	if len(run) == 0 {
		return nil
	}
	b := Batch{From: i.At, To: i.At, Events: run}
	last := &run[len(run)-1]
	b.To.Seq, b.To.EventID = last.Position.Seq, last.ID
	err := i.Commit(ctx, b)
	if !IsPermanent(err) || i.Park == nil {
		return err
	}
	if cut := middle(run); cut > 0 {
		if err := i.Apply(ctx, run[:cut]); err != nil {
			return err
		}
		return i.Apply(ctx, run[cut:])
	}
	if err := i.Park(ctx, b, err); err != nil {
		return err
	}
	return i.Commit(ctx, Batch{From: b.From, To: b.To, Parked: run})
}

// middle returns where to cut a run in two, near its middle and not between a link and its turn unless they are all, or
// 0 if it is one event.
func middle(run []Judged) int {
	cut := len(run) / 2
	if len(run) > 2 && run[cut-1].Continues {
		cut++
	}
	return cut
}

// Pass moves the checkpoint over events that need not be applied. The checkpoint still names the last applied event,
// which proves later that the stream is the same.
func (i *Intake) Pass(ctx context.Context, seq uint64) error {
	to := i.At
	to.Seq = seq
	return i.Commit(ctx, Batch{From: i.At, To: to})
}

// Commit applies a batch that begins at the checkpoint.
func (i *Intake) Commit(ctx context.Context, b Batch) error {
	err := i.Sink.Apply(ctx, b)
	if err == nil {
		i.At = b.To
		i.Done(b)
	}
	return err
}
