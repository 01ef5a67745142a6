package history

import (
	"context"
	"fmt"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
)

// current returns the session once this process follows its partition. A session that is not in memory, or not any
// more, is read from the log.
func (w *writing) current(ctx context.Context) (*session, error) {
	if err := w.following(ctx); err != nil {
		return nil, err
	}
	return w.session(ctx, w.id)
}

// following waits until this process follows the partition.
func (w *writing) following(ctx context.Context) error {
	select {
	case <-w.follower.Started(w.partition):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", jetlog.ErrUnavailable, ctx.Err())
	}
}

// refresh folds all that the log holds now, from all writers, and returns the partition's last sequence.
func (w *writing) refresh(ctx context.Context) (uint64, error) {
	head, err := w.log.Head(ctx, w.partition)
	if err != nil {
		return 0, err
	}
	w.known.fresh, w.known.head = true, head.Seq
	return head.Seq, w.settle(ctx, head.Seq)
}

// settle waits until an event is on disk, and then until it is folded. The fold does not wait for the disk: mostly it
// is done by then.
func (w *writing) settle(ctx context.Context, seq uint64) error {
	if err := w.durable(ctx, seq); err != nil {
		return err
	}
	return w.folded(ctx, seq)
}

// folded waits until an event is folded.
func (w *writing) folded(ctx context.Context, seq uint64) error {
	at := events.Position{Partition: w.partition, Seq: seq}
	if err := w.log.Reached(ctx, w.follower.Folded(w.partition), at); err != nil {
		return fmt.Errorf("%w: %w", jetlog.ErrUnavailable, err)
	}
	return nil
}

// durable waits until an event is on disk.
func (w *writing) durable(ctx context.Context, seq uint64) error {
	if err := w.log.Durable(ctx, events.Position{Partition: w.partition, Seq: seq}); err != nil {
		return fmt.Errorf("%w: %w", jetlog.ErrUnavailable, err)
	}
	return nil
}
