// Package pause waits between two attempts or looks.
package pause

import (
	"context"
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

// Growing returns the pauses between attempts: about the first one at first, and longer each time, up to most.
func Growing(first, most time.Duration) *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = first, most
	return b
}
