package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
)

const onLetter = "/deadletters/{projection}/{position}"

// operates adds the calls of operators on dead letters.
func (a *API) operates(api huma.API) {
	register(a, api, operation(
		"list-dead-letters", Admin, http.MethodGet, "/deadletters", "List the events that views could not apply",
		notFound,
	), a.deadLetters)
	register(
		a, api, operation("get-dead-letter", Admin, http.MethodGet, onLetter, "Look at a dead letter", notFound),
		a.deadLetter,
	)
	register(
		a, api,
		operation("retry-dead-letter", Admin, http.MethodPost, onLetter+"/retry", "Apply the event again", notFound),
		a.retryDeadLetter,
	)
	register(a, api, operation(
		"drop-dead-letter", Admin, http.MethodPost, onLetter+"/drop", "Leave the event out for good", unread, notFound,
	), a.dropDeadLetter)
}

type deadLettersIn struct {
	Projection string `query:"projection" doc:"Of this view alone"`
}

type deadLettersOut struct{ Body deadLettersJSON }

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

func newDeadLetterJSON(l projections.DeadLetter) deadLetterJSON {
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

func (a *API) deadLetters(ctx context.Context, in *deadLettersIn) (*deadLettersOut, error) {
	queues := a.cfg.DeadLetters
	if in.Projection != "" {
		q, err := a.queue(in.Projection)
		if err != nil {
			return nil, err
		}
		queues = []projections.DeadLetterQueue{q}
	}
	out := &deadLettersOut{deadLettersJSON{DeadLetters: []deadLetterJSON{}}}
	for _, q := range queues {
		letters, err := q.DeadLetters(ctx)
		if err != nil {
			return nil, letterError(err)
		}
		for _, l := range letters {
			out.Body.DeadLetters = append(out.Body.DeadLetters, newDeadLetterJSON(l))
		}
	}
	return out, nil
}

type deadLetterIn struct {
	Projection string `path:"projection"`
	Position   string `path:"position"`
}

type deadLetterOut struct{ Body deadLetterJSON }

// find gives the queue and the position that a path names.
func (a *API) find(projection, position string) (projections.DeadLetterQueue, events.Position, error) {
	at, err := events.ParsePosition(position)
	if err != nil {
		return nil, at, letterError(projections.ErrNoDeadLetter)
	}
	q, err := a.queue(projection)
	return q, at, err
}

func (a *API) queue(projection string) (projections.DeadLetterQueue, error) {
	for _, q := range a.cfg.DeadLetters {
		if q.Name() == projection {
			return q, nil
		}
	}
	return nil, newProblem(
		codeNotFound,
		"this process keeps no dead letters of such a projection: GET /v1/projections names those that there are",
	)
}

func (a *API) deadLetter(ctx context.Context, in *deadLetterIn) (*deadLetterOut, error) {
	q, at, err := a.find(in.Projection, in.Position)
	if err != nil {
		return nil, err
	}
	l, err := letterAt(ctx, q, at)
	if err != nil {
		return nil, letterError(err)
	}
	return &deadLetterOut{newDeadLetterJSON(l)}, nil
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

// retryDeadLetter answers 200 also where the view refused the event again: state says
// which it was.
func (a *API) retryDeadLetter(ctx context.Context, in *deadLetterIn) (*deadLetterOut, error) {
	q, at, err := a.find(in.Projection, in.Position)
	if err != nil {
		return nil, err
	}
	done, err := q.RetryDeadLetter(ctx, at)
	if err != nil {
		return nil, letterError(err)
	}
	out := newDeadLetterJSON(done.DeadLetter)
	if done.Applied {
		out.State = "applied"
	}
	a.cfg.Logger.Info(
		"a dead letter was retried", "projection", in.Projection, "position", at, "event_type", done.Type, "applied",
		done.Applied,
	)
	return &deadLetterOut{out}, nil
}

type dropDeadLetterIn struct {
	Projection string `path:"projection"`
	Position   string `path:"position"`
	body[dropBody]
}

type dropBody struct {
	Reason    string `json:"reason" doc:"Why; kept with the letter"`
	DroppedBy string `json:"dropped_by,omitempty" doc:"Who; kept with the letter"`
}

func (a *API) dropDeadLetter(ctx context.Context, in *dropDeadLetterIn) (*deadLetterOut, error) {
	if in.value.Reason == "" {
		return nil, invalid("reason", "must say why the event stays out")
	}
	q, at, err := a.find(in.Projection, in.Position)
	if err != nil {
		return nil, err
	}
	// Who said so first, when and why, stands.
	if l, err := letterAt(ctx, q, at); err == nil && l.Dropped != nil {
		return &deadLetterOut{newDeadLetterJSON(l)}, nil
	}
	l, err := q.DropDeadLetter(ctx, at, projections.Drop{
		Reason: projections.BoundReason(in.value.Reason), By: projections.BoundReason(in.value.DroppedBy),
		At: a.cfg.Now().UTC().Truncate(time.Microsecond),
	})
	if err != nil {
		return nil, letterError(err)
	}
	a.cfg.Logger.Warn("a dead letter was dropped", "projection", in.Projection, "position", at, "event_type", l.Type)
	return &deadLetterOut{newDeadLetterJSON(l)}, nil
}

// letterError gives the problem of a queue's error.
func letterError(err error) error {
	switch {
	case errors.Is(err, projections.ErrNoDeadLetter):
		return newProblem(codeNotFound, projections.ErrNoDeadLetter.Error())
	case errors.Is(err, jetlog.ErrUnavailable),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	default:
		return fmt.Errorf("%w: %w", errLetters, err)
	}
}
