package console

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/problems"
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
		s.post(onView+"/cancel", access.Admin, s.unbound, nil, s.cancelRebuild)
		s.routes = append(s.routes, wire.Route{
			Method: http.MethodPost, Path: root + onView + "/verify", Needs: access.Admin,
			Admit: s.unbound, Long: verifyTime, Deadline: verifyTime,
			Handle: s.verify,
		})
	}
	if len(s.cfg.DeadLetters) > 0 {
		s.post(onLetter+"/retry", access.Admin, s.unbound, nil, s.retryLetter)
		s.act(s.dropLetter())
	}
}

func (s *surface) rebuild() action {
	return action{
		path: onView + "/rebuild", needs: access.Admin, admit: s.unbound, title: "Rebuild a view",
		words: []string{
			"The view is filled anew from the log, beside the one that is served. Readers notice nothing until the " +
				"new one has caught up and takes the place of the old one.",
			"It can be broken off at any time; then the view is served as it was. The page Views shows how far it is.",
		},
		button: "Begin the rebuild",
		about: func(_ context.Context, r *http.Request, out *actView) error {
			out.Names, out.Back = []named{{"View", r.PathValue("name")}}, root+"/views"
			out.Above = []link{{"Views", out.Back}}
			return nil
		},
		do: func(ctx context.Context, r *http.Request, _ url.Values) (string, error) {
			generation, err := s.cfg.Keeper.Rebuild(ctx, r.PathValue("name"))
			return rebuiltHref(r.PathValue("name"), generation), s.busy(ctx, r.PathValue("name"), err)
		},
	}
}

// What runs, if a view can't be rebuilt or compared now. Comparisons are in no list.
const (
	isRebuilt  = "A rebuild of this view is under way: the page Views shows how far it is."
	isCompared = "Another comparison of this view is under way, or another process rebuilds it: try again in a moment."
)

// busy says what keeps a view from being rebuilt or compared, if that is why it was refused.
func (s *surface) busy(ctx context.Context, name string, err error) error {
	if !errors.Is(err, projections.ErrRebuilding) {
		return err
	}
	list, _ := s.cfg.Projections.Projections(ctx) // without the list nothing is known of a rebuild
	if slices.ContainsFunc(list, func(one projections.Status) bool {
		return one.Name == name && one.State == rebuilding
	}) {
		return problems.New(problems.CodeRebuilding, isRebuilt)
	}
	return problems.New(problems.CodeRebuilding, isCompared)
}

func (s *surface) cancelRebuild(ctx context.Context, r *http.Request, _ url.Values) (string, error) {
	generation, err := s.cfg.Keeper.CancelRebuild(ctx, r.PathValue("name"))
	return rebuiltHref(r.PathValue("name"), generation), err
}

// rebuiltHref returns the address of the page of views that tells what has become of a rebuild.
func rebuiltHref(name string, generation uint64) string {
	return root + "/views?" + url.Values{
		"view": {name}, "generation": {strconv.FormatUint(generation, 10)},
	}.Encode()
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
	// End is where the log ended when the comparison began, if that is known; Took is how long it was.
	End   string
	Began time.Time
	Took  time.Duration
	// Say is why the comparison ended early; empty if it did not.
	Say string
}

func (*verified) crumbs() []link { return []link{{"Views", root + "/views"}} }

// differenceRow is a difference with the address of its session.
type differenceRow struct {
	projections.Difference
	Href string
}

// progressed is how far a comparison is. Left is 0 while that is not known.
type progressed struct {
	Name     string
	Done, Of uint64
	Left     time.Duration
}

// comparison is the page of a comparison while it is made. The page grows: each step of the progress stands where the
// one before it stood, by the style alone, so no script is needed. It ends when the client goes.
type comparison struct {
	s       *surface
	w       http.ResponseWriter
	r       *http.Request
	out     *wire.Patient
	page    view
	begun   bool
	started time.Time
}

// verify compares a view with the log, and shows how far that is and then the differences.
func (s *surface) verify(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	out := verified{Name: r.PathValue("name")}
	c := comparison{
		s: s, w: w, r: r, out: s.api.NewPatient(w, nil), started: time.Now(),
		page: view{"verified", "Comparison with the log", &out},
	}
	defer c.out.End()
	out.Began = s.cfg.Now()
	var err error
	if out.End, err = s.logEnd(ctx); err != nil {
		return err
	}
	out.Sessions, err = s.cfg.Keeper.Verify(ctx, out.Name, 0, func(done, of uint64) error {
		return errors.Join(ctx.Err(), c.step(done, of))
	}, func(d projections.Difference) error {
		if out.Found++; out.Found <= mostDifferences {
			out.Differences = append(out.Differences, differenceRow{d, sessionHref(d.SessionID)})
		}
		return ctx.Err()
	})
	out.Took = time.Since(c.started)
	err = s.busy(ctx, out.Name, err)
	if err != nil && !c.begun {
		return err
	}
	if err != nil {
		_, out.Say = statusOf(err)
	}
	_ = c.end() // an error means that the client has gone
	return err
}

// logEnd returns where the log ends; empty if this process does not read it.
func (s *surface) logEnd(ctx context.Context) (string, error) {
	if s.cfg.Events == nil {
		return "", nil
	}
	stream, err := s.cfg.Events.OpenEvents(ctx, services.EventQuery{})
	if err != nil {
		return "", err
	}
	defer stream.Close()
	return stream.End().String(), nil
}

// begin sends the page up to its progress.
func (c *comparison) begin() error {
	if c.begun {
		return nil
	}
	c.begun = true
	c.s.renew(c.w, c.r)
	begin(c.w, http.StatusOK)
	return errors.Join(c.send("top", c.s.layoutOf(c.r, c.page)), c.send("verifying", c.page.data))
}

// step sends how far the comparison is, in events.
func (c *comparison) step(done, of uint64) error {
	if err := c.begin(); err != nil {
		return err
	}
	at := progressed{Name: c.page.data.(*verified).Name, Done: done, Of: of}
	if done > 0 && done < of {
		at.Left = time.Duration(float64(time.Since(c.started)) * float64(of-done) / float64(done)).Round(time.Second)
	}
	return c.send("verifystep", at)
}

// end sends what the comparison has found.
func (c *comparison) end() error {
	return errors.Join(c.begin(), c.send("verified", c.page.data), c.send("bottom", c.s.layoutOf(c.r, c.page)))
}

// send sends a part of the page.
func (c *comparison) send(template string, data any) error {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, template, data); err != nil {
		return err
	}
	return c.out.Send(b.Bytes())
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
		path: onLetter + "/drop", needs: access.Admin, admit: s.unbound, title: "Drop a dead letter",
		words: []string{
			"The event stays out of the view for good, until the view is rebuilt. The log keeps the event.",
			"The list keeps the letter with the reason, so that others see why the view lacks the event.",
		},
		button: "Drop the letter",
		fields: []field{{Name: "reason", Label: "Reason", Most: 500, Required: true}},
		about: func(_ context.Context, r *http.Request, out *actView) error {
			out.Names = []named{{"View", r.PathValue("projection")}, {"Position", r.PathValue("position")}}
			out.Back = root + "/deadletters"
			out.Above = []link{{"Dead letters", out.Back}}
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
