package follower

import (
	"context"
	"time"
)

// loads bounds how much judges read of the log beside its writers: so many sessions at once, with a pause after each.
type loads struct {
	slots chan struct{}
	// pauseFactor is how long a slot stays taken after a load, in times of what the load took.
	pauseFactor int
}

// run runs a load as soon as there is a slot.
func (l *loads) run(ctx context.Context, load func() error) error {
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	began := time.Now()
	err := load()
	free := func() { <-l.slots }
	if l.pauseFactor == 0 {
		free()
	} else {
		time.AfterFunc(time.Duration(l.pauseFactor)*time.Since(began), free)
	}
	return err
}
