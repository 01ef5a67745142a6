package eraser

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
)

// leftover is a note of an event that came after the erasure of the turn or session that it names. Once the event has
// left the log, only this note says what is left to do beside the log.
type leftover struct {
	Created   time.Time `json:"created"`
	Seq       uint64    `json:"seq"`
	SessionID string    `json:"session_id"`
	Subject   string    `json:"subject"`
	Elsewhere bool      `json:"elsewhere,omitempty"`
}

func leftoverKey(partition int, seq string) string {
	return fmt.Sprintf("eraser.late.%d.%s", partition, seq)
}

// eraseElsewhere erases an event that stands on another subject than the session that it names, if the named turn or
// session is gone.
func (e *Eraser) eraseElsewhere(ctx context.Context, j *job) (rest, error) {
	r, found, err := e.log.At(ctx, j.at)
	if err != nil || !found {
		return rest{}, err
	}
	state, err := e.fold(ctx, j.session, maxSeq, nil)
	if err != nil || !state.NamesGone(r) {
		return rest{}, err
	}
	j.run, j.elsewhere = e.eraseLate, e.cfg.Forget != nil
	return e.eraseLate(ctx, j)
}

// eraseLate takes out the event itself, of the mirrors too. A mirror that is behind, and a view that has a row of the
// event, hold up neither the log nor the progress: they are noted first.
func (e *Eraser) eraseLate(ctx context.Context, j *job) (rest, error) {
	left := j.elsewhere || e.eraseMirroredAt(ctx, j.subject, j.at) != nil
	if left {
		note := leftover{e.log.Created(j.at.Partition), j.at.Seq, j.session, j.subject, j.elsewhere}
		if err := e.notes.Put(ctx, leftoverKey(j.at.Partition, fmt.Sprint(j.at.Seq)), note); err != nil {
			return rest{}, err
		}
	}
	if err := e.erase(ctx, j.at); err != nil {
		return rest{}, err
	}
	e.cfg.Logger.Info("an event that came after the erasure of what it names is erased",
		"session_id", j.session, "position", j.at)
	if left {
		e.finish(j)
	}
	return rest{}, nil
}

// finish lets Run do what is left of a late event.
func (e *Eraser) finish(j *job) {
	e.later.enqueue(e.leftovers[j.at.Partition], &job{
		session: j.session, subject: j.subject, at: j.at, elsewhere: j.elsewhere, run: e.finishLate,
	})
}

// finishLate takes a late event that has left the log out of the mirrors and of the view.
func (e *Eraser) finishLate(ctx context.Context, j *job) (rest, error) {
	gone, err := e.log.Still(ctx, j.at.Partition, j.at.Seq-1, j.at.Seq)
	if err == nil && !gone {
		err = errors.New("the event has not left the log yet")
	}
	if err != nil {
		return rest{}, err
	}
	err = e.eraseMirroredAt(ctx, j.subject, j.at)
	if j.elsewhere && e.cfg.Forget != nil {
		err = errors.Join(err, e.cfg.Forget(ctx, j.at))
	}
	if err != nil {
		return rest{}, err
	}
	return rest{}, e.notes.Drop(ctx, leftoverKey(j.at.Partition, fmt.Sprint(j.at.Seq)))
}

// finishNoted goes on with what is left of late events of a partition, whichever process noted it.
func (e *Eraser) finishNoted(ctx context.Context, partition int) error {
	return jetlog.EachNote(ctx, e.notes, leftoverKey(partition, "*"), func(n jetlog.Note[leftover]) {
		if l := n.Value; l.Created.Equal(e.log.Created(partition)) {
			at := events.Position{Partition: partition, Seq: l.Seq}
			e.finish(&job{session: l.SessionID, subject: l.Subject, at: at, elsewhere: l.Elsewhere})
		}
	})
}

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
