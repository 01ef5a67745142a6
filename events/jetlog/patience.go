package jetlog

import (
	"context"
	"time"
)

// patience is how long to wait before something is tried again: longer each time,
// up to a second. The zero value begins anew.
type patience time.Duration

func (p *patience) wait(ctx context.Context) {
	*p = min(max(2**p, patience(5*time.Millisecond)), patience(time.Second))
	pause(ctx, time.Duration(*p))
}

// pause waits, but not longer than ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
