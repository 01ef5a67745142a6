// Package pause waits between two attempts or looks.
package pause

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// For waits, but not longer than ctx, and reports whether ctx goes on.
func For(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Within calls f with a context that ends after d at the latest. late: only that ended it, and err is nil. Where ctx
// has ended, and f failed, err is ctx's error: what f says by then may only mean that d was over.
func Within(ctx context.Context, d time.Duration, f func(context.Context) error) (late bool, err error) {
	brief, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	switch err := f(brief); {
	case err == nil:
		return false, nil
	case ctx.Err() != nil:
		return false, ctx.Err()
	case brief.Err() != nil && errors.Is(err, context.DeadlineExceeded):
		return true, nil
	default:
		return false, err
	}
}

// Growing returns the pauses between attempts: about the first one at first, and longer each time, up to most.
func Growing(first, most time.Duration) *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = first, most
	return b
}
