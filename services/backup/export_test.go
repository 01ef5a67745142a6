package backup

import (
	"context"
	"time"
)

// SetPatience sets how long requests may go on when the door is shut.
func (d *Door) SetPatience(patience, haste time.Duration) { d.patience, d.haste = patience, haste }

// Shut is shut.
func (d *Door) Shut(ctx context.Context, hurry func()) error { return d.shut(ctx, hurry) }
