package httpapi

import (
	"context"
	"time"
)

// Check is something that must answer before this process may take requests, or that it
// can do without (Optional). Probe must end with its ctx.
type Check struct {
	Name     string
	Optional bool
	Probe    func(ctx context.Context) error
}

// RateLimiter holds sessions and identities to a rate. A request of a kind that may not
// go on may come again after wait.
// ByIdentity tells whether identities have a rate.
type RateLimiter interface {
	ByIdentity() bool
	Allow(kind, sessionID, identityID string) (wait time.Duration, ok bool)
}
