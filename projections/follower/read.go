package follower

import (
	"context"
	"errors"
	"fmt"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/pause"
)

// Read reads a partition until ctx ends, and then returns nil. After a failure it warns, pauses, and goes on where it
// was. It returns an error only where the stream is no longer the one that it read (jetlog.ErrStream). The options say
// how the log is read until the reader has joined the others.
func (f *Follower) Read(ctx context.Context, r jetlog.Following) error {
	after, err := uint64(0), error(nil)
	if r.Begin != nil {
		for after, err = r.Begin(ctx); err != nil; after, err = r.Begin(ctx) {
			if !pauseAfter(ctx, &r, err) {
				return nil
			}
		}
	}
	r.Watermark.Advance(after)
	if r.Opened != nil {
		r.Opened()
	}
	in := f.Events(r.Partition, after, r.Options)
	defer in.Close()
	for {
		batch, err := in.Next(ctx)
		switch {
		case errors.Is(err, jetlog.ErrStream) && ctx.Err() == nil:
			return fmt.Errorf("read partition %d: %w", r.Partition, err)
		case err != nil && !pauseAfter(ctx, &r, err):
			return nil
		case err != nil:
			continue
		}
		for err := r.Read(ctx, batch); err != nil; err = r.Read(ctx, batch) {
			if !pauseAfter(ctx, &r, err) {
				return nil
			}
		}
		r.Watermark.Advance(batch[len(batch)-1].Position.Seq)
	}
}

// pauseAfter warns of an error and pauses; it returns false if ctx ends first.
func pauseAfter(ctx context.Context, r *jetlog.Following, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	r.Warn(err)
	return pause.For(ctx, r.Pause)
}
