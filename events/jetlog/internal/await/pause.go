package await

import (
	"context"
	"time"

	"github.com/turnledger/turnledger/events/pause"
)

// Patience is how long to wait before the next attempt: longer each time, up to a second. The zero value begins anew.
type Patience time.Duration

// Wait waits before the next attempt, but not longer than ctx.
func (p *Patience) Wait(ctx context.Context) {
	*p = min(max(2**p, Patience(5*time.Millisecond)), Patience(time.Second))
	pause.For(ctx, time.Duration(*p))
}
