package v1

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/problems"
)

const onLetter = "/deadletters/{projection}/{position}"

// operates adds the calls by which operators handle dead letters.
func (a *surface) operates() {
	call(a, a.deadLetters, op("list-dead-letters", access.Admin, "GET /deadletters",
		"List the events that views could not apply", notFound))
	call(a, a.deadLetter, op("get-dead-letter", access.Admin, "GET "+onLetter, "Look at a dead letter", notFound))
	call(a, a.retryDeadLetter, op("retry-dead-letter", access.Admin, "POST "+onLetter+"/retry",
		"Apply the event again", notFound))
	call(a, a.dropDeadLetter, op("drop-dead-letter", access.Admin, "POST "+onLetter+"/drop",
		"Leave the event out for good", unread, notFound))
}

type deadLettersIn struct {
	Projection string `query:"projection" doc:"Of this view alone"`
}

type deadLettersJSON struct {
	DeadLetters []deadLetterJSON `json:"deadletters" nullable:"false"`
}

type deadLetterJSON struct {
	Projection string          `json:"projection" example:"audit"`
	Position   events.Position `json:"position" example:"0:42"`
	EventID    string          `json:"event_id"`
	Type       string          `json:"type" example:"turnledger.turn.started.v1"`
	SessionID  *string         `json:"session_id"`
	State      string          `json:"state" enum:"waiting,dropped,applied"`
	Reason     string          `json:"reason" doc:"Why it could not be applied; never a text"`
	Attempts   int             `json:"attempts"`
	ParkedAt   time.Time       `json:"parked_at"`
	DroppedAt  *time.Time      `json:"dropped_at"`
	DroppedBy  *string         `json:"dropped_by"`
	DropReason *string         `json:"drop_reason"`
}

func newDeadLetterJSON(l *projections.DeadLetter) deadLetterJSON {
	out := deadLetterJSON{
		Projection: l.Projection, Position: l.Position, EventID: l.EventID, Type: l.Type,
		SessionID: optional(&l.SessionID),
		State:     "waiting", Reason: l.Reason, Attempts: l.Attempts, ParkedAt: l.ParkedAt,
	}
	if d := l.Dropped; d != nil {
		out.State, out.DroppedAt, out.DroppedBy, out.DropReason = "dropped", &d.At, &d.By, &d.Reason
	}
	return out
}

func (a *surface) deadLetters(ctx context.Context, in *deadLettersIn) (out deadLettersJSON, err error) {
	queues := a.cfg.DeadLetters
	if in.Projection != "" {
		q, err := a.queue(in.Projection)
		if err != nil {
			return out, err
		}
		queues = []projections.DeadLetterQueue{q}
	}
	out.DeadLetters = []deadLetterJSON{}
	for _, q := range queues {
		letters, err := q.DeadLetters(ctx)
		if err != nil {
			return out, letterError(err)
		}
		out.DeadLetters = append(out.DeadLetters, mapped(letters, newDeadLetterJSON)...)
	}
	return out, nil
}

type deadLetterIn struct {
	Projection string `path:"projection"`
	Position   string `path:"position"`
}

// find returns the queue and the position that a path names.
func (a *surface) find(projection, position string) (projections.DeadLetterQueue, events.Position, error) {
	at, err := events.ParsePosition(position)
	if err != nil {
		return nil, at, projections.ErrNoDeadLetter
	}
	q, err := a.queue(projection)
	return q, at, err
}

func (a *surface) queue(projection string) (projections.DeadLetterQueue, error) {
	for _, q := range a.cfg.DeadLetters {
		if q.Name() == projection {
			return q, nil
		}
	}
	return nil, problems.New(problems.CodeNotFound,
		"this process keeps no dead letters of such a projection: GET /v1/projections "+
			"names those that there are")
}

func (a *surface) deadLetter(ctx context.Context, in *deadLetterIn) (deadLetterJSON, error) {
	q, at, err := a.find(in.Projection, in.Position)
	if err != nil {
		return deadLetterJSON{}, err
	}
	l, err := letterAt(ctx, q, at)
	return newDeadLetterJSON(&l), letterError(err)
}

func letterAt(ctx context.Context, q projections.DeadLetterQueue, at events.Position) (projections.DeadLetter, error) {
	letters, err := q.DeadLetters(ctx)
	for _, l := range letters {
		if l.Position == at {
			return l, err
		}
	}
	return projections.DeadLetter{}, cmp.Or(err, projections.ErrNoDeadLetter)
}

// retryDeadLetter answers 200 even if the view refused the event again. The state in the answer says whether it did.
func (a *surface) retryDeadLetter(ctx context.Context, in *deadLetterIn) (deadLetterJSON, error) {
	q, at, err := a.find(in.Projection, in.Position)
	if err != nil {
		return deadLetterJSON{}, err
	}
	done, err := q.RetryDeadLetter(ctx, at)
	if err != nil {
		return deadLetterJSON{}, letterError(err)
	}
	out := newDeadLetterJSON(&done.DeadLetter)
	if done.Applied {
		out.State = "applied"
	}
	a.wire.Logger().Info("a dead letter was retried",
		"projection", in.Projection, "position", at, "event_type", done.Type, "applied", done.Applied)
	return out, nil
}

type dropDeadLetterIn struct {
	Projection string `path:"projection"`
	Position   string `path:"position"`
	Body       dropBody
}

type dropBody struct {
	Reason    string `json:"reason" doc:"Why; kept with the letter"`
	DroppedBy string `json:"dropped_by,omitempty" doc:"Who; kept with the letter"`
}

func (a *surface) dropDeadLetter(ctx context.Context, in *dropDeadLetterIn) (deadLetterJSON, error) {
	if in.Body.Reason == "" {
		return deadLetterJSON{}, invalid("reason", "must say why the event stays out")
	}
	q, at, err := a.find(in.Projection, in.Position)
	if err != nil {
		return deadLetterJSON{}, err
	}
	// If the letter was dropped before, the first drop counts: its time, its reason and its author.
	if l, err := letterAt(ctx, q, at); err == nil && l.Dropped != nil {
		return newDeadLetterJSON(&l), nil
	}
	l, err := q.DropDeadLetter(ctx, at, projections.Drop{
		Reason: projections.BoundReason(in.Body.Reason), By: projections.BoundReason(in.Body.DroppedBy),
		At: a.cfg.Now().UTC().Truncate(time.Microsecond),
	})
	if err != nil {
		return deadLetterJSON{}, letterError(err)
	}
	a.wire.Logger().Warn("a dead letter was dropped", "projection", in.Projection, "position", at, "event_type", l.Type)
	return newDeadLetterJSON(&l), nil
}

// letterError marks an error as one of the store of dead letters; nil stays nil.
func letterError(err error) error {
	for _, other := range []error{
		projections.ErrNoDeadLetter, jetlog.ErrUnavailable, context.DeadlineExceeded, context.Canceled,
	} {
		if errors.Is(err, other) {
			return err
		}
	}
	if err == nil {
		return nil
	}
	return viewError(err)
}
