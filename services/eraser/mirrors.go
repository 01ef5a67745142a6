package eraser

import (
	"context"

	"github.com/turnledger/turnledger/events"
)

// eraseMirrored overwrites in each mirror of the log what was taken out of a session up to a position. The mirror
// itself knows what that was, so that nothing is lost in a crash.
func (e *Eraser) eraseMirrored(ctx context.Context, session string, at events.Position) error {
	return e.inMirrors(ctx, events.SessionSubject(session), at, func(mirror string) ([]uint64, error) {
		return e.log.LeftIn(ctx, mirror, session, at.Seq)
	})
}

// eraseMirroredAt overwrites in each mirror the event on a subject at a position.
func (e *Eraser) eraseMirroredAt(ctx context.Context, subject string, at events.Position) error {
	return e.inMirrors(ctx, subject, at, func(string) ([]uint64, error) { return []uint64{at.Seq}, nil })
}

// inMirrors overwrites events in each mirror that follows a subject.
func (e *Eraser) inMirrors(
	ctx context.Context, subject string, at events.Position, left func(mirror string) ([]uint64, error),
) error {
	mirrors, err := e.log.Mirrors(ctx, subject, at)
	if err != nil {
		return err
	}
	for _, mirror := range mirrors {
		seqs, err := left(mirror)
		if err != nil {
			return err
		}
		for _, seq := range seqs {
			if err := e.speed.Wait(ctx); err != nil {
				return err
			}
			if err := e.log.EraseIn(ctx, mirror, seq); err != nil {
				return err
			}
		}
	}
	return nil
}
