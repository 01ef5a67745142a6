package desk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
)

// Source is a view or an effect whose dead letters a queue manages.
type Source interface {
	Name() string
	Served(ctx context.Context) (projections.Served, error)
	Restore(ctx context.Context, s projections.Session) (settled []events.Position, err error)
}

// Queue manages the dead letters of a source's served generation (projections.DeadLetterQueue). A view can't apply an
// event that is before its checkpoint. So a retry folds the session from the log up to the view's position, and the
// view replaces its session by the result.
type Queue struct {
	Source
	desk  *Desk
	log   projections.LogReader
	rules session.Rules
}

var _ projections.DeadLetterQueue = (*Queue)(nil)

// Queue returns the dead letters of a source; rules are those of its folds.
func (d *Desk) Queue(of Source, log projections.LogReader, rules session.Rules) *Queue {
	rules.Slim = false
	return &Queue{of, d, log, rules}
}

// counting returns the letters that count: those of the served generation whose events its checkpoints have passed, in
// the same streams; and those that came with a backup, while the view still holds the earlier log.
func (q *Queue) counting(ctx context.Context) (letters []jetlog.Note[letter], served projections.Served, err error) {
	if served, err = q.Served(ctx); err != nil {
		return nil, served, err
	}
	all, err := q.desk.letters(ctx, q.Name(), served.Store, served.Generation, ">")
	if err != nil {
		return nil, served, err
	}
	letters = slices.DeleteFunc(all, func(n jetlog.Note[letter]) bool {
		cp := served.Of(n.Value.Position.Partition)
		return n.Value.Position.Seq > cp.Seq || !sameStream(n.Value.Created, cp.Created)
	})
	restored, err := q.desk.letters(ctx, q.Name(), restoredStore, 0, ">")
	for _, n := range restored {
		if cp := served.Of(n.Value.Position.Partition); cp.Seq > 0 && !sameStream(n.Value.Created, cp.Created) {
			letters = append(letters, n)
		}
	}
	return letters, served, err
}

// DeadLetters implements projections.DeadLetterQueue.
func (q *Queue) DeadLetters(ctx context.Context) ([]projections.DeadLetter, error) {
	found, _, err := q.counting(ctx)
	out := make([]projections.DeadLetter, 0, min(len(found), projections.MaxDeadLetters))
	for _, n := range found[:cap(out)] {
		out = append(out, n.Value.DeadLetter)
	}
	return out, err
}

// found is a letter, with the letters of the same session and with what the source serves.
type found struct {
	jetlog.Note[letter]
	session []events.Position
	served  projections.Served
}

func (q *Queue) find(ctx context.Context, at events.Position) (f found, err error) {
	all, served, err := q.counting(ctx)
	if err != nil {
		return f, err
	}
	i := slices.IndexFunc(all, func(n jetlog.Note[letter]) bool { return n.Value.Position == at })
	if i < 0 {
		return f, projections.ErrNoDeadLetter
	}
	f.Note, f.served = all[i], served
	for _, l := range all {
		if l.Value.SessionID == f.Value.SessionID && l.Value.Position.Partition == at.Partition {
			f.session = append(f.session, l.Value.Position)
		}
	}
	return f, nil
}

// restoreTries bounds how often a session is folded again because it got new events meanwhile.
const (
	restoreTries = 50
	restorePause = 20 * time.Millisecond
)

var errBusy = errors.New("the session goes on too fast: retry the letter again")

// RetryDeadLetter implements projections.DeadLetterQueue.
func (q *Queue) RetryDeadLetter(ctx context.Context, at events.Position) (out projections.Retried, err error) {
	defer projections.Wrap(&err, "retry %s in %s", at, q.Name())
	for range restoreTries {
		dead, err := q.find(ctx, at)
		if err != nil {
			return out, err
		}
		folded, err := q.fold(ctx, dead)
		if err != nil {
			return out, err
		}
		settled, err := q.Restore(ctx, folded)
		if projections.IsPermanent(err) {
			reason := projections.BoundReason(err.Error())
			out.DeadLetter, err = q.amend(ctx, at, func(l *letter) { l.Attempts, l.Reason = l.Attempts+1, reason })
			return out, err
		}
		if err != nil {
			return out, err
		}
		for _, done := range settled {
			if _, err := q.amend(ctx, done, nil); err != nil && !errors.Is(err, projections.ErrNoDeadLetter) {
				return out, err
			}
		}
		if len(settled) > 0 {
			return projections.Retried{DeadLetter: dead.Value.DeadLetter, Applied: true}, nil
		}
		if !pause.For(ctx, restorePause) {
			return out, ctx.Err()
		}
	}
	return out, errBusy
}

// fold reads a letter's session from the log, or only the event if it is on no session's subject.
func (q *Queue) fold(ctx context.Context, f found) (projections.Session, error) {
	dead, upTo := f.Value.DeadLetter, f.served.Of(f.Value.Position.Partition).Seq
	s := projections.Session{
		ID: dead.SessionID, Partition: dead.Position.Partition, UpTo: upTo, Letter: dead.Position, Letters: f.session,
		State: session.New(dead.SessionID, q.rules),
	}
	judge := projections.NewJudge(q.log, q.rules, upTo)
	take := func(e events.Recorded) error {
		s.State.Fold(e)
		judged, err := judge.Judge(ctx, e)
		if err == nil && (e.Position == dead.Position || !slices.Contains(f.session, e.Position)) {
			s.Events = append(s.Events, judged)
		}
		return err
	}
	if dead.SessionID == "" {
		e, found, err := q.log.At(ctx, dead.Position)
		if err == nil && found {
			err = take(e)
		}
		return s, err
	}
	for e, err := range q.log.Session(ctx, dead.SessionID, 0, upTo) {
		if err == nil {
			err = take(e)
		}
		if err != nil {
			return s, fmt.Errorf("read the log again: %w", err)
		}
	}
	return s, nil
}

// DropDeadLetter implements projections.DeadLetterQueue.
func (q *Queue) DropDeadLetter(
	ctx context.Context, at events.Position, d projections.Drop,
) (projections.DeadLetter, error) {
	return q.amend(ctx, at, func(l *letter) { l.Dropped = &d })
}

// amend changes a letter durably, or removes it if change is nil.
func (q *Queue) amend(
	ctx context.Context, at events.Position, change func(*letter),
) (now projections.DeadLetter, err error) {
	notes, err := q.desk.open(ctx)
	if err != nil {
		return now, err
	}
	for {
		f, err := q.find(ctx, at)
		if err != nil {
			return now, err
		}
		if change == nil {
			err = notes.Remove(ctx, f.Key, f.Key, f.Revision)
		} else {
			change(&f.Value)
			err = notes.Commit(ctx, f.Key, f.Value, f.Key, f.Revision)
		}
		if !errors.Is(err, jetlog.ErrConflict) {
			return f.Value.DeadLetter, err
		}
	}
}

// Dropped returns who dropped an event that the served generation has parked; nil if it was not dropped.
func (q *Queue) Dropped(ctx context.Context, at events.Position) (*projections.Drop, error) {
	f, err := q.find(ctx, at)
	if errors.Is(err, projections.ErrNoDeadLetter) {
		return nil, nil //nolint:nilnil // not dropped is a valid answer
	}
	return f.Value.Dropped, err
}
