package await

import (
	"context"
	"time"

	"github.com/turnledger/turnledger/events/pause"
)

// Patience is the wait before the next attempt: it doubles each time, up to a second. Reset it to zero after a success.
type Patience time.Duration

// Wait waits before the next attempt, at most until ctx ends.
func (p *Patience) Wait(ctx context.Context) {
	*p = min(max(2**p, Patience(5*time.Millisecond)), Patience(time.Second))
	pause.For(ctx, time.Duration(*p))
}
