package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"github.com/turnledger/turnledger/projections/rebuild"
	"github.com/turnledger/turnledger/services/client"
)

type projectionsCmd struct {
	List    projectionsListCmd    `cmd:"" help:"Show how far each view is."`
	Rebuild projectionsRebuildCmd `cmd:"" help:"Fill a view anew from the log, beside the one that is served."`
	Verify  projectionsVerifyCmd  `cmd:"" help:"Fold the log again and compare it with the views."`
}

type projectionsListCmd struct{ remote }

func (c *projectionsListCmd) Run(e *env) error {
	return ask(e, c.remote, func(s *client.Client) ([]client.Projection, error) { return s.Projections(e.ctx) }, func(all []client.Projection) error {
		w := tabwriter.NewWriter(e.out, 0, 4, 2, ' ', 0)
		_, _ = fmt.Fprintln(w, "NAME\tPARTITION\tPOSITION\tHEAD\tLAG\tRATE\tSTATE\tGENERATION\tLAST ERROR")
		for _, p := range all {
			head, lag := cmp.Or(p.Head, "?"), "?"
			if p.LagEvents != nil && p.LagSeconds != nil {
				lag = fmt.Sprintf("%d (%.1fs)", *p.LagEvents, *p.LagSeconds)
			}
			_, _ = fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%.1f/s\t%s\t%d\t%s\n", p.Name, p.Partition, p.Position, head, lag, p.Rate, p.State, p.Generation, onOneLine(p.LastError))
		}
		return w.Flush()
	})
}

// onOneLine keeps a table's row together: PostgreSQL's client says what failed on several.
func onOneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

type projectionsRebuildCmd struct {
	Name   string `arg:"" help:"The view: recent or audit."`
	Detach bool   `help:"Don't wait for the end."`
	Cancel bool   `help:"Break off the rebuild that runs; the view is served as it was."`
	Yes    bool   `help:"Don't ask." short:"y"`
	remote
}

func (c *projectionsRebuildCmd) Run(e *env) error {
	if c.Cancel {
		return ask(e, c.remote, func(s *client.Client) (int, error) { return s.CancelRebuild(e.ctx, c.Name) }, func(generation int) error {
			_, err := fmt.Fprintf(e.out, "generation %d of %s is given up; the view is served as it was\n", generation, c.Name)
			return err
		})
	}
	if !c.Yes && term.IsTerminal(int(os.Stdin.Fd())) {
		if ok, err := confirmed(e, fmt.Sprintf("Rebuild %s from the log? It takes the room of the view a second time while it lasts.", c.Name)); err != nil || !ok {
			return errors.Join(err, errors.New("not rebuilt"))
		}
	}
	s, err := c.dial(1, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	began := time.Now()
	generation, err := s.Rebuild(e.ctx, c.Name)
	if err != nil {
		return c.explain(e.ctx, err)
	}
	said := fmt.Sprintf("generation %d of %s is being filled; turnledger projections list shows how far", generation, c.Name)
	if !c.Detach {
		if err := c.wait(e, s, generation); err != nil {
			return err
		}
		said = fmt.Sprintf("%s is served from generation %d, after %s", c.Name, generation, time.Since(began).Round(time.Millisecond))
	}
	if c.JSON {
		return json.NewEncoder(e.out).Encode(map[string]any{"name": c.Name, "generation": generation, "served": !c.Detach})
	}
	_, err = fmt.Fprintln(e.out, said)
	return err
}

// lookEvery is the pause between two looks at a rebuild.
const lookEvery = 200 * time.Millisecond

// wait follows a rebuild to its end.
func (c *projectionsRebuildCmd) wait(e *env, s *client.Client, generation int) error {
	bar := newCounter(e.err, "rebuild "+c.Name, "events")
	defer bar.done()
	for {
		all, err := s.Projections(e.ctx)
		if e.ctx.Err() != nil {
			return errors.New("stopped waiting; the rebuild goes on in the server: turnledger projections list shows how far, projections rebuild --cancel breaks it off")
		}
		if err != nil {
			return fmt.Errorf("%w (whether the rebuild goes on is not known: turnledger projections list)", c.explain(e.ctx, err))
		}
		over, err := follow(bar, all, c.Name, generation)
		if over || err != nil {
			return err
		}
		select {
		case <-e.ctx.Done():
		case <-time.After(lookEvery):
		}
	}
}

// follow shows how far a generation is, and tells whether it is served.
func follow(bar *counter, all []client.Projection, name string, generation int) (over bool, err error) {
	var done, of uint64
	var rate float64
	served := 0
	filling := false
	for _, p := range all {
		switch {
		case p.Name != name:
		case p.State == rebuild.StateFailed && p.Generation == generation:
			return false, errors.New(p.LastError + " (the view is served as it was)")
		case p.State == rebuild.StateRebuilding && p.Generation == generation:
			filling = true
			done, of, rate = done+seq(p.Position), of+seq(p.Head), rate+p.Rate
		case p.State != rebuild.StateFailed && p.State != rebuild.StateRebuilding:
			served = max(served, p.Generation)
		}
	}
	if filling {
		bar.at(done, of)
		return false, nil
	}
	if served < generation {
		return false, fmt.Errorf("the rebuild ended without being served: the server was stopped or started again; the view is served as it was (generation %d)", served)
	}
	return true, nil
}

// seq is the sequence of a position.
func seq(position string) (n uint64) {
	_, s, _ := strings.Cut(position, ":")
	_, _ = fmt.Sscan(s, &n) // what is none counts for nothing
	return n
}

type projectionsVerifyCmd struct {
	Name   string `arg:"" optional:"" help:"The view: recent or audit; both if none is named."`
	Sample int    `help:"Look at so many sessions only, drawn at random from those that the view holds."`
	remote
}

// errDiffers: a view is not what the log says.
var errDiffers = errors.New("what the view holds is not what the log says: rebuild it with turnledger projections rebuild")

func (c *projectionsVerifyCmd) Run(e *env) error {
	if c.Sample < 0 {
		return fmt.Errorf("%w: --sample: at least 1", errUsage)
	}
	s, err := c.dial(1, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	names := []string{c.Name}
	if c.Name == "" {
		if names, err = c.all(e, s); err != nil {
			return err
		}
	}
	differences := 0
	for _, name := range names {
		n, err := c.verify(e, s, name)
		if err != nil {
			return c.explain(e.ctx, err)
		}
		if differences += n; n > 0 {
			c.tellLetters(e, s, name)
		}
	}
	if differences > 0 {
		return errDiffers
	}
	return nil
}

// tellLetters names what else may be why a view differs: what was parked is in the log and not in the view, until it is retried.
// A server that does not tell leaves it at the differences.
func (c *projectionsVerifyCmd) tellLetters(e *env, s *client.Client, name string) {
	letters, err := s.DeadLetters(e.ctx, name)
	if err != nil || len(letters) == 0 {
		return
	}
	dropped := 0
	for _, l := range letters {
		if !l.DroppedAt.IsZero() {
			dropped++
		}
	}
	_, _ = fmt.Fprintf(e.err, "%s lacks what its dead letters say: %d, %d of them dropped (turnledger deadletters list)\n", name, len(letters), dropped)
}

// all gives the views that the server feeds.
func (c *projectionsVerifyCmd) all(e *env, s *client.Client) (names []string, err error) {
	list, err := s.Projections(e.ctx)
	if err != nil {
		return nil, c.explain(e.ctx, err)
	}
	seen := map[string]bool{}
	for _, p := range list {
		if p.Rebuildable && !seen[p.Name] {
			seen[p.Name], names = true, append(names, p.Name)
		}
	}
	if len(names) == 0 {
		return nil, errors.New("this server feeds no view: name the one that does with --url")
	}
	return names, nil
}

func (c *projectionsVerifyCmd) verify(e *env, s *client.Client, name string) (differences int, err error) {
	bar := newCounter(e.err, "verify "+name, "events")
	defer bar.done()
	err = s.Verify(e.ctx, name, c.Sample, func(step client.Verified, line []byte) error {
		switch {
		case step.Progress != nil:
			bar.at(step.Progress.Events, step.Progress.Of)
			return nil
		case c.JSON:
			_, err = fmt.Fprintf(e.out, "%s\n", line)
		case step.Difference != nil:
			d := step.Difference
			bar.say(e.out, "%s  session %s  %s  view %s  log %s", name, d.SessionID, d.What, orNone(d.View), orNone(d.Log))
		case step.Result != nil:
			bar.say(e.out, "%s: %d sessions looked at, %d differences", name, step.Result.Sessions, step.Result.Differences)
		}
		if step.Result != nil {
			differences = step.Result.Differences
		}
		return err
	})
	return differences, err
}

func orNone(digest string) string {
	if digest == "" {
		return "(none)"
	}
	return digest
}
