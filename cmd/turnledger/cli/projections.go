package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/turnledger/turnledger/services/client"
)

type projectionsCmd struct {
	List    projectionsListCmd    `cmd:"" help:"Show how far each view is."`
	Rebuild projectionsRebuildCmd `cmd:"" help:"Fill a view anew from the log, beside the one that is served."`
	Verify  projectionsVerifyCmd  `cmd:"" help:"Fold the log again and compare it with the views."`
}

type projectionsListCmd struct{ remote }

// Run lists the views, a row a partition.
func (c *projectionsListCmd) Run(e *Env) error {
	return ask(e, c.remote, func(s *client.Client) ([]client.Projection, error) {
		return s.Projections(e.Ctx)
	}, func(all []client.Projection) {
		table(e, "NAME\tPARTITION\tPOSITION\tHEAD\tLAG\tRATE\tSTATE\tGENERATION\tLAST ERROR", all,
			func(p client.Projection) []any {
				head, lag := cmp.Or(p.Head, "?"), "?"
				if p.LagEvents != nil && p.LagSeconds != nil {
					lag = fmt.Sprintf("%d (%.1fs)", *p.LagEvents, *p.LagSeconds)
				}
				oneLine := strings.Join(strings.Fields(p.LastError), " ") // PostgreSQL's client takes several
				return []any{
					p.Name, p.Partition, p.Position, head, lag, fmt.Sprintf("%.1f/s", p.Rate), p.State, p.Generation,
					oneLine,
				}
			})
	})
}

type projectionsRebuildCmd struct {
	Name   string `arg:"" help:"The view: recent or audit."`
	Detach bool   `help:"Don't wait for the end."`
	Cancel bool   `help:"Break off the rebuild that runs; the view is served as it was."`
	Yes    bool   `help:"Don't ask." short:"y"`
	remote
}

// Run rebuilds a view, or cancels its rebuild.
func (c *projectionsRebuildCmd) Run(e *Env) error {
	if c.Cancel {
		return ask(e, c.remote, func(s *client.Client) (int, error) {
			return s.CancelRebuild(e.Ctx, c.Name)
		}, func(generation int) {
			e.print("generation %d of %s is given up; the view is served as it was", generation, c.Name)
		})
	}
	question := fmt.Sprintf("Rebuild %s from the log? It takes the room of the view a second time while it lasts.",
		c.Name)
	if err := e.confirm(c.Yes, question, "not rebuilt"); err != nil {
		return err
	}
	return c.dial(1, func(s *client.Client) error {
		began := time.Now()
		generation, err := s.Rebuild(e.Ctx, c.Name)
		if err != nil {
			return c.explain(e.Ctx, err)
		}
		if !c.Detach {
			if err := c.wait(e, s, generation); err != nil {
				return err
			}
		}
		switch {
		case c.JSON:
			answer := map[string]any{"name": c.Name, "generation": generation, "served": !c.Detach}
			return json.NewEncoder(e.Out).Encode(answer)
		case c.Detach:
			e.print("generation %d of %s is being filled; turnledger projections list shows how far",
				generation, c.Name)
		default:
			took := time.Since(began).Round(time.Millisecond)
			e.print("%s is served from generation %d, after %s", c.Name, generation, took)
		}
		return nil
	})
}

// wait follows a rebuild to its end.
func (c *projectionsRebuildCmd) wait(e *Env, s *client.Client, generation int) error {
	bar := newCounter(e.Err, "rebuild "+c.Name, "events")
	defer bar.Done()
	err := s.AwaitRebuild(e.Ctx, c.Name, generation, lookEvery, bar.Reach)
	failed, failure := errors.AsType[*client.RebuildError](err)
	switch {
	case err == nil:
		return nil
	case e.Ctx.Err() != nil:
		return errors.New("stopped waiting; the rebuild goes on in the server: " +
			"turnledger projections list shows how far, projections rebuild --cancel breaks it off")
	case failure:
		return failed
	default:
		return fmt.Errorf("%w (whether the rebuild goes on is not known: turnledger projections list)",
			c.explain(e.Ctx, err))
	}
}

type projectionsVerifyCmd struct {
	Name   string `arg:"" optional:"" help:"The view: recent or audit; both if none is named."`
	Sample count  `help:"Look at so many sessions only, drawn at random from those that the view holds."`
	remote
}

// errDiffers: a view differs from the log.
var errDiffers = errors.New("what the view holds is not what the log says: " +
	"rebuild it with turnledger projections rebuild")

// Run verifies one view, or all that the server feeds.
func (c *projectionsVerifyCmd) Run(e *Env) error {
	return c.dial(1, func(s *client.Client) error {
		names := []string{c.Name}
		if c.Name == "" {
			var err error
			if names, err = s.Rebuildable(e.Ctx); err != nil {
				return c.explain(e.Ctx, err)
			}
			if len(names) == 0 {
				return errors.New("this server feeds no view: name the one that does with --url")
			}
		}
		differs := false
		for _, name := range names {
			n, err := c.verify(e, s, name)
			if err != nil {
				return c.explain(e.Ctx, err)
			}
			if n > 0 {
				differs = true
				c.tellLetters(e, s, name)
			}
		}
		if differs {
			return errDiffers
		}
		return nil
	})
}

// tellLetters prints that dead letters may explain a difference: a parked event is in the log, but not in the view
// until it is retried. If the server does not list the letters, tellLetters prints nothing.
func (c *projectionsVerifyCmd) tellLetters(e *Env, s *client.Client, name string) {
	letters, err := s.DeadLetters(e.Ctx, name)
	if err != nil || len(letters) == 0 {
		return
	}
	dropped := 0
	for _, l := range letters {
		if !l.DroppedAt.IsZero() {
			dropped++
		}
	}
	e.printErr("%s lacks what its dead letters say: %d, %d of them dropped (turnledger deadletters list)",
		name, len(letters), dropped)
}

func (c *projectionsVerifyCmd) verify(e *Env, s *client.Client, name string) (differences int, err error) {
	bar := newCounter(e.Err, "verify "+name, "events")
	defer bar.Done()
	return differences, s.Verify(e.Ctx, name, int(c.Sample), func(step client.Verified, line []byte) error {
		if step.Result != nil {
			differences = step.Result.Differences
		}
		switch d := step.Difference; {
		case step.Progress != nil:
			bar.Reach(step.Progress.Events, step.Progress.Of)
		case c.JSON:
			e.print("%s", line)
		case d != nil:
			bar.PrintLine(e.Out, "%s  session %s  %s  view %s  log %s",
				name, d.SessionID, d.What, cmp.Or(d.View, "(none)"), cmp.Or(d.Log, "(none)"))
		case step.Result != nil:
			bar.PrintLine(e.Out, "%s: %d sessions looked at, %d differences", name, step.Result.Sessions, differences)
		}
		return e.Out.Err
	})
}
