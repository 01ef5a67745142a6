package eraser

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
)

// leftover is a note about an event that came after the erasure of the turn or session that it names. Once the event
// has left the log, only this note says what must still be erased outside the log.
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

// eraseElsewhere erases an event whose subject is not that of the session it names, if the named turn or session is
// gone.
func (e *Eraser) eraseElsewhere(ctx context.Context, j *job) (remainder, error) {
	r, found, err := e.log.At(ctx, j.at)
	if err != nil || !found {
		return remainder{}, err
	}
	state, err := e.fold(ctx, j.session, maxSeq, nil)
	if err != nil || !state.NamesGone(r) {
		return remainder{}, err
	}
	j.run, j.otherSubject = e.eraseLate, e.cfg.Forget != nil
	return e.eraseLate(ctx, j)
}

// eraseLate takes the event itself out of the log. The mirrors and the view that has a row of the event are noted first
// and done later, so that they hold up neither the log nor the progress.
func (e *Eraser) eraseLate(ctx context.Context, j *job) (remainder, error) {
	left := j.otherSubject || e.eraseMirroredAt(ctx, j.subject, j.at) != nil
	if left {
		note := leftover{e.log.Created(j.at.Partition), j.at.Seq, j.session, j.subject, j.otherSubject}
		if err := e.notes.Put(ctx, leftoverKey(j.at.Partition, fmt.Sprint(j.at.Seq)), note); err != nil {
			return remainder{}, err
		}
	}
	if err := e.erase(ctx, j.at); err != nil {
		return remainder{}, err
	}
	e.cfg.Logger.Info("an event that came after the erasure of what it names is erased",
		"session_id", j.session, "position", j.at)
	if left {
		e.finish(j)
	}
	return remainder{}, nil
}

// finish queues the rest of the work for a late event.
func (e *Eraser) finish(j *job) {
	e.later.enqueue(e.leftovers[j.at.Partition], &job{
		session: j.session, subject: j.subject, at: j.at, otherSubject: j.otherSubject, run: e.finishLate,
	})
}

// finishLate erases a late event from the mirrors and the view, after it has left the log.
func (e *Eraser) finishLate(ctx context.Context, j *job) (remainder, error) {
	gone, err := e.log.Still(ctx, j.at.Partition, j.at.Seq-1, j.at.Seq)
	if err == nil && !gone {
		err = errors.New("the event has not left the log yet")
	}
	if err != nil {
		return remainder{}, err
	}
	err = e.eraseMirroredAt(ctx, j.subject, j.at)
	if j.otherSubject && e.cfg.Forget != nil {
		err = errors.Join(err, e.cfg.Forget(ctx, j.at))
	}
	if err != nil {
		return remainder{}, err
	}
	return remainder{}, e.notes.Drop(ctx, leftoverKey(j.at.Partition, fmt.Sprint(j.at.Seq)))
}

// finishNoted queues the rest of the work for the late events of a partition, whichever process noted them.
func (e *Eraser) finishNoted(ctx context.Context, partition int) error {
	return jetlog.EachNote(ctx, e.notes, leftoverKey(partition, "*"), func(n jetlog.Note[leftover]) {
		if l := n.Value; l.Created.Equal(e.log.Created(partition)) {
			at := events.Position{Partition: partition, Seq: l.Seq}
			e.finish(&job{session: l.SessionID, subject: l.Subject, at: at, otherSubject: l.Elsewhere})
		}
	})
}

// eraseMirrored overwrites, in each mirror of the log, the events of a session up to a position that the log no longer
// has. Each mirror finds these events itself, so a crash loses nothing.
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
