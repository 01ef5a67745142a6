package services

import (
	"context"
	"time"
)

// Steps makes the parts of a request known that take their time. A step is named in a word; none has a text.
type Steps interface {
	// Step does something as a step of the request of ctx.
	Step(ctx context.Context, name string, do func(context.Context) error) error
	// Note makes a step known that was measured elsewhere.
	Note(ctx context.Context, name string, took time.Duration, err error)
}
