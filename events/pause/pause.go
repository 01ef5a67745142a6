// Package pause waits between two attempts or looks.
package pause

import (
	"context"
	"time"
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
