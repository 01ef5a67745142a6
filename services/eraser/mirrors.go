package eraser

import (
	"context"

	"github.com/turnledger/turnledger/events"
)

// eraseMirrored overwrites in each mirror of the log what was taken out of a session up to
// a position. What that was the mirror itself tells, so that nothing is lost in a crash.
func (e *Eraser) eraseMirrored(ctx context.Context, session string, at events.Position) error {
	mirrors, err := e.log.Mirrors(ctx, events.SessionSubject(session), at)
	if err != nil {
		return err
	}
	for _, mirror := range mirrors {
		left, err := e.log.LeftIn(ctx, mirror, session, at.Seq)
		if err != nil {
			return err
		}
		for _, seq := range left {
			if err := e.eraseIn(ctx, mirror, seq); err != nil {
				return err
			}
		}
	}
	return nil
}

// eraseMirroredAt overwrites in each mirror the event on a subject at a position.
func (e *Eraser) eraseMirroredAt(ctx context.Context, subject string, at events.Position) error {
	mirrors, err := e.log.Mirrors(ctx, subject, at)
	if err != nil {
		return err
	}
	for _, mirror := range mirrors {
		if err := e.eraseIn(ctx, mirror, at.Seq); err != nil {
			return err
		}
	}
	return nil
}

// eraseIn overwrites one event of a mirror.
func (e *Eraser) eraseIn(ctx context.Context, mirror string, seq uint64) error {
	if err := e.speed.Wait(ctx); err != nil {
		return err
	}
	return e.log.EraseIn(ctx, mirror, seq)
}
