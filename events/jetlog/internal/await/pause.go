package await

import (
	"context"
	"time"
)

// Patience is how long to wait before the next attempt: longer each time, up to a second. The zero value begins anew.
type Patience time.Duration

// Wait waits before the next attempt, but not longer than ctx.
func (p *Patience) Wait(ctx context.Context) {
	*p = min(max(2**p, Patience(5*time.Millisecond)), Patience(time.Second))
	Pause(ctx, time.Duration(*p))
}

// Pause waits, but not longer than ctx.
func Pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
