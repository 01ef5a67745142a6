// Package silence ends a stream that says nothing any more.
package silence

import (
	"context"
	"errors"
	"time"
)

var (
	// ErrSilent is the cause of a context that ended since nothing was heard.
	ErrSilent = errors.New("the model fell silent")
	// ErrBroken says that a stream ended before its answer did.
	ErrBroken = errors.New("the model's stream ended before its answer did")
)

// Limit is how long a model may say nothing, where nothing else is configured.
const Limit = 30 * time.Second

// Watch gives a context that ends when heard is not called for so long. End is to be
// called when the stream is over.
func Watch(ctx context.Context, limit time.Duration) (watched context.Context, heard, end func()) {
	if limit == 0 {
		limit = Limit
	}
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() { cancel(ErrSilent) })
	return ctx, func() { timer.Reset(limit) }, func() {
		timer.Stop()
		cancel(nil)
	}
}
