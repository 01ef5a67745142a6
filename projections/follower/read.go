package follower

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/pause"
)

// Following says what Read reads, and what it does with the events.
type Following struct {
	Partition int
	// Options say how the log is read until the reader has joined the others.
	Options jetlog.TailOptions
	// Watermark advances to each event that Read has processed.
	Watermark *jetlog.Watermark
	// Begin returns the sequence after which to begin; nil: after Watermark.
	Begin func(context.Context) (uint64, error)
	// Read processes events, in order. After an error Read gets the same events again.
	Read func(context.Context, []jetlog.Message) error
	// Warn gets each error. Then there is a pause before the next attempt.
	Warn  func(error)
	Pause time.Duration
}

// Read reads a partition until ctx ends, and then returns nil. After a failure it warns, pauses, and goes on where it
// was. It returns an error only where the stream is no longer the one that it read (jetlog.ErrStream).
func (f *Follower) Read(ctx context.Context, r Following) error {
	return r.run(ctx, func(after uint64) *Subscription[jetlog.Message] {
		return f.Events(r.Partition, after, r.Options)
	})
}

func (r *Following) run(ctx context.Context, open func(after uint64) *Subscription[jetlog.Message]) error {
	if r.Begin != nil {
		after, err := r.Begin(ctx)
		for ; err != nil; after, err = r.Begin(ctx) {
			if !r.pauseAfter(ctx, err) {
				return nil
			}
		}
		r.Watermark.Advance(after)
	}
	in := open(r.Watermark.At())
	defer in.Close()
	for {
		batch, err := in.Next(ctx)
		switch {
		case errors.Is(err, jetlog.ErrStream) && ctx.Err() == nil:
			return fmt.Errorf("read partition %d: %w", r.Partition, err)
		case err != nil && !r.pauseAfter(ctx, err):
			return nil
		case err != nil:
			continue
		}
		for err := r.Read(ctx, batch); err != nil; err = r.Read(ctx, batch) {
			if !r.pauseAfter(ctx, err) {
				return nil
			}
		}
		r.Watermark.Advance(batch[len(batch)-1].Position.Seq)
	}
}

// pauseAfter warns of an error and pauses; it returns false if ctx ends first.
func (r *Following) pauseAfter(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	r.Warn(err)
	return pause.For(ctx, r.Pause)
}
