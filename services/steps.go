package services

import (
	"context"
	"time"

	"github.com/turnledger/turnledger/services/access"
)

// Measure does something as a step of the call that ctx belongs to (access.Steps). Outside of a call nothing is
// measured.
func Measure(ctx context.Context, name string, do func(context.Context) error) error {
	if steps := access.CallOf(ctx).Steps; steps != nil {
		return steps.Step(ctx, name, do)
	}
	return do(ctx)
}

// Measured records a step that was measured elsewhere.
func Measured(ctx context.Context, name string, took time.Duration) {
	if steps := access.CallOf(ctx).Steps; steps != nil {
		steps.Record(ctx, name, took, nil)
	}
}
