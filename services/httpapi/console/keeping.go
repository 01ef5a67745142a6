package console

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// Paths of actions on a view and on a dead letter.
const (
	onView   = "/views/{name}"
	onLetter = "/deadletters/{projection}/{position}"
)

// keeping adds what an operator can do to views and dead letters.
func (s *surface) keeping() {
	if s.cfg.Keeper != nil {
		s.act(s.rebuild())
		s.post(onView+"/cancel", access.Admin, nil, s.cancelRebuild)
		s.routes = append(s.routes, wire.Route{
			Method: http.MethodPost, Path: root + onView + "/verify", Needs: access.Admin, Long: verifyTime,
			Handle: s.verify,
		})
	}
	if len(s.cfg.DeadLetters) > 0 {
		s.post(onLetter+"/retry", access.Admin, nil, s.retryLetter)
		s.act(s.dropLetter())
	}
}

func (s *surface) rebuild() action {
	return action{
		path: onView + "/rebuild", needs: access.Admin, title: "Rebuild a view",
		words: []string{
			"The view is filled anew from the log, beside the one that is served. Readers notice nothing until the " +
				"new one has caught up and takes the place of the old one.",
			"It can be broken off at any time; then the view is served as it was. The page Views shows how far it is.",
		},
		button: "Begin the rebuild",
		about: func(_ context.Context, r *http.Request, out *actView) error {
			out.Names, out.Back = []named{{"View", r.PathValue("name")}}, root+"/views"
			return nil
		},
		do: func(ctx context.Context, r *http.Request, _ url.Values) (string, error) {
			_, err := s.cfg.Keeper.Rebuild(ctx, r.PathValue("name"))
			return root + "/views", err
		},
	}
}

func (s *surface) cancelRebuild(ctx context.Context, r *http.Request, _ url.Values) (string, error) {
	_, err := s.cfg.Keeper.CancelRebuild(ctx, r.PathValue("name"))
	return root + "/views", err
}

// verifyTime bounds how long the comparison of a view with the log may take in the console.
const verifyTime = 30 * time.Minute

// mostDifferences is how many differences a page lists.
const mostDifferences = 200

// verified is the page of a comparison.
type verified struct {
	Name            string
	Sessions, Found int
	Differences     []differenceRow
}

// differenceRow is a difference with the address of its session.
type differenceRow struct {
	projections.Difference
	Href string
}

// verify compares a view with the log, and shows the differences.
func (s *surface) verify(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), verifyTime)
	defer cancel()
	out := verified{Name: r.PathValue("name")}
	var err error
	out.Sessions, err = s.cfg.Keeper.Verify(ctx, out.Name, 0, func(uint64, uint64) error { return ctx.Err() },
		func(d projections.Difference) error {
			if out.Found++; out.Found <= mostDifferences {
				out.Differences = append(out.Differences, differenceRow{d, sessionHref(d.SessionID)})
			}
			return ctx.Err()
		})
	if err != nil {
		return err
	}
	s.renew(w, r)
	return s.render(w, r, http.StatusOK, view{"verified", "Comparison with the log", out})
}

// letterOf returns the queue and the position that a request's path names.
func (s *surface) letterOf(r *http.Request) (projections.DeadLetterQueue, events.Position, error) {
	at, err := events.ParsePosition(r.PathValue("position"))
	for _, q := range s.cfg.DeadLetters {
		if err == nil && q.Name() == r.PathValue("projection") {
			return q, at, nil
		}
	}
	return nil, at, errNothing
}

// retryLetter applies an event again.
func (s *surface) retryLetter(ctx context.Context, r *http.Request, _ url.Values) (string, error) {
	q, at, err := s.letterOf(r)
	if err != nil {
		return "", err
	}
	done, err := q.RetryDeadLetter(ctx, at)
	if err != nil {
		return "", err
	}
	outcome := "refused"
	if done.Applied {
		outcome = "applied"
	}
	return root + "/deadletters?" + url.Values{"retried": {outcome}}.Encode(), nil
}

func (s *surface) dropLetter() action {
	return action{
		path: onLetter + "/drop", needs: access.Admin, title: "Drop a dead letter",
		words: []string{
			"The event stays out of the view for good, until the view is rebuilt. The log keeps the event.",
			"The list keeps the letter with the reason, so that others see why the view lacks the event.",
		},
		button: "Drop the letter",
		fields: []field{{Name: "reason", Label: "Reason", Most: 500, Required: true}},
		about: func(_ context.Context, r *http.Request, out *actView) error {
			out.Names = []named{{"View", r.PathValue("projection")}, {"Position", r.PathValue("position")}}
			out.Back = root + "/deadletters"
			return nil
		},
		do: func(ctx context.Context, r *http.Request, form url.Values) (string, error) {
			q, at, err := s.letterOf(r)
			if err != nil {
				return "", err
			}
			if form.Get("reason") == "" {
				return "", invalid("reason", "must say why the event stays out")
			}
			_, err = q.DropDeadLetter(ctx, at, projections.Drop{
				Reason: projections.BoundReason(form.Get("reason")), By: projections.BoundReason(callerName(ctx)),
				At: s.cfg.Now().UTC().Truncate(time.Microsecond),
			})
			return root + "/deadletters", err
		},
	}
}
