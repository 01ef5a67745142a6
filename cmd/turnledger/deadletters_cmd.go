package main

import (
	"errors"
	"fmt"
	"os/user"
	"text/tabwriter"
	"time"

	"github.com/turnledger/turnledger/services/client"
)

type deadlettersCmd struct {
	List  deadlettersListCmd  `cmd:"" help:"List them: those that wait, and those that were dropped."`
	Show  deadlettersShowCmd  `cmd:"" help:"Show one."`
	Retry deadlettersRetryCmd `cmd:"" help:"Apply the event again."`
	Drop  deadlettersDropCmd  `cmd:"" help:"Leave the event out for good, and say why."`
}

type deadlettersListCmd struct {
	Projection string `help:"Of this view alone."`
	remote
}

// Run lists the letters.
func (c *deadlettersListCmd) Run(e *env) error {
	return ask(e, c.remote, func(s *client.Client) ([]client.DeadLetter, error) { return s.DeadLetters(e.ctx, c.Projection) }, func(all []client.DeadLetter) error {
		if len(all) == 0 {
			_, err := fmt.Fprintln(e.err, "(no dead letters)")
			return err
		}
		w := tabwriter.NewWriter(e.out, 0, 4, 2, ' ', 0)
		_, _ = fmt.Fprintln(w, "PROJECTION\tPOSITION\tTYPE\tSTATE\tATTEMPTS\tPARKED AT\tREASON")
		for _, l := range all {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", l.Projection, l.Position, l.Type, l.State, l.Attempts, l.ParkedAt.Format(time.RFC3339), l.Reason)
		}
		return w.Flush()
	})
}

type deadlettersShowCmd struct {
	letterName
	remote
}

// Run shows one letter.
func (c *deadlettersShowCmd) Run(e *env) error {
	return ask(e, c.remote, func(s *client.Client) (client.DeadLetter, error) {
		return s.DeadLetter(e.ctx, c.Projection, c.Position)
	}, func(l client.DeadLetter) error {
		return showLetter(e, l)
	})
}

func showLetter(e *env, l client.DeadLetter) error {
	w := tabwriter.NewWriter(e.out, 0, 4, 2, ' ', 0)
	rows := [][2]string{
		{"projection", l.Projection}, {"position", l.Position}, {"event", l.EventID}, {"type", l.Type}, {"session", l.SessionID},
		{"state", l.State}, {"reason", l.Reason}, {"attempts", fmt.Sprint(l.Attempts)}, {"parked at", l.ParkedAt.Format(time.RFC3339)},
	}
	if !l.DroppedAt.IsZero() {
		rows = append(rows, [2]string{"dropped at", l.DroppedAt.Format(time.RFC3339)}, [2]string{"dropped by", l.DroppedBy}, [2]string{"because", l.DropReason})
	}
	for _, r := range rows {
		_, _ = fmt.Fprintf(w, "%s\t%s\n", r[0], r[1])
	}
	return w.Flush()
}

// errRefused: a retry changed nothing.
var errRefused = errors.New("the view still can't apply the event; leave it out with: turnledger deadletters drop")

type deadlettersRetryCmd struct {
	letterName
	remote
}

// Run retries one letter.
func (c *deadlettersRetryCmd) Run(e *env) error {
	refused := false
	err := ask(e, c.remote, func(s *client.Client) (client.DeadLetter, error) {
		l, err := s.RetryDeadLetter(e.ctx, c.Projection, c.Position)
		refused = err == nil && l.State != "applied"
		return l, err
	}, func(l client.DeadLetter) error {
		said := "applied; its session is as the log has it"
		if refused {
			said = fmt.Sprintf("refused again, after %d attempts: %s", l.Attempts, l.Reason)
		}
		_, err := fmt.Fprintf(e.out, "%s: %s\n", c.letterName, said)
		return err
	})
	if err == nil && refused {
		return errRefused
	}
	return err
}

type deadlettersDropCmd struct {
	letterName
	Reason string `help:"Why; kept with the letter." required:""`
	By     string `help:"Who; by default the user of this command."`
	remote
}

// Run drops one letter.
func (c *deadlettersDropCmd) Run(e *env) error {
	if c.By == "" {
		if me, err := user.Current(); err == nil {
			c.By = me.Username
		}
	}
	return ask(e, c.remote, func(s *client.Client) (client.DeadLetter, error) {
		return s.DropDeadLetter(e.ctx, c.Projection, c.Position, c.Reason, c.By)
	}, func(l client.DeadLetter) error {
		_, err := fmt.Fprintf(e.out, "%s: dropped by %s; the log keeps the event, and the letter stays in the list\n", c.letterName, l.DroppedBy)
		return err
	})
}
