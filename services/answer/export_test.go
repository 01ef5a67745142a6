package answer

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// Heard reports whether another process works on a step for a caller that waits.
func Heard(s *Service, ctx context.Context, key uuid.UUID, since time.Time) bool {
	return s.heard(ctx, key, since)
}

// Working reports whether a process works on a step.
func Working(s *Service, ctx context.Context, key uuid.UUID, since time.Time) bool {
	return s.working(ctx, key, since)
}
