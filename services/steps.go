package services

import (
	"context"
	"time"
)

// Steps measures the slow parts of a request. The name of a step is one word, and never a text from a client.
type Steps interface {
	// Step runs do as a step of the request that ctx belongs to.
	Step(ctx context.Context, name string, do func(context.Context) error) error
	// Record records a step that was measured elsewhere.
	Record(ctx context.Context, name string, took time.Duration, err error)
}
