package endpoint

import (
	"context"
	"time"
)

// patience is how long a model may say nothing, where nothing else is configured.
const patience = 30 * time.Second

// watch gives a context that ends when heard is not called for so long. End is to be
// called when the stream is over.
func watch(ctx context.Context, limit time.Duration) (watched context.Context, heard, end func()) {
	if limit == 0 {
		limit = patience
	}
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() { cancel(ErrSilent) })
	return ctx, func() { timer.Reset(limit) }, func() {
		timer.Stop()
		cancel(nil)
	}
}
