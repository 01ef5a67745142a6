package answer

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// Heard reports whether another process works on a step for a caller that waits.
func Heard(ctx context.Context, s *Service, key uuid.UUID, since time.Time) bool {
	return s.heard(ctx, key, since)
}

// Working reports whether a process works on a step.
func Working(ctx context.Context, s *Service, key uuid.UUID, since time.Time) bool {
	return s.working(ctx, key, since)
}
