package cli

import (
	"errors"
	"fmt"
	"os/user"
	"text/tabwriter"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services/client"
)

type deadlettersCmd struct {
	List  deadlettersListCmd  `cmd:"" help:"List them: those that wait, and those that were dropped."`
	Show  deadlettersShowCmd  `cmd:"" help:"Show one."`
	Retry deadlettersRetryCmd `cmd:"" help:"Apply the event again."`
	Drop  deadlettersDropCmd  `cmd:"" help:"Leave the event out for good, and say why."`
}

// letterName is how an operator names a letter on the command line.
type letterName struct {
	Projection string `arg:"" help:"The view or effect, as turnledger deadletters list names it."`
	Position   string `arg:"" help:"Where the event stands in the log, such as 0:42."`
}

// Validate implements kong's interface: a malformed position is wrong use.
func (n letterName) Validate() error {
	if _, err := events.ParsePosition(n.Position); err != nil {
		return fmt.Errorf("%q is no position: turnledger deadletters list names them", n.Position)
	}
	return nil
}

func (n letterName) String() string { return fmt.Sprintf("%s of %s", n.Position, n.Projection) }

type deadlettersListCmd struct {
	Projection only `help:"Of this view alone."`
	remote
}

// Run lists the letters.
func (c *deadlettersListCmd) Run(e *Env) error {
	return ask(e, c.remote, func(s *client.Client) ([]client.DeadLetter, error) {
		return s.DeadLetters(e.Ctx, string(c.Projection))
	}, func(all []client.DeadLetter) {
		if len(all) == 0 {
			e.printErr("(no dead letters)")
			return
		}
		table(e, "PROJECTION\tPOSITION\tTYPE\tSTATE\tATTEMPTS\tPARKED AT\tREASON", all,
			func(l client.DeadLetter) []any {
				return []any{l.Projection, l.Position, l.Type, l.State, l.Attempts, l.ParkedAt.Format(time.RFC3339),
					l.Reason}
			})
	})
}

type deadlettersShowCmd struct {
	letterName
	remote
}

// Run shows one letter.
func (c *deadlettersShowCmd) Run(e *Env) error {
	return ask(e, c.remote, func(s *client.Client) (client.DeadLetter, error) {
		return s.DeadLetter(e.Ctx, c.Projection, c.Position)
	}, func(l client.DeadLetter) {
		w := tabwriter.NewWriter(e.Out, 0, 4, 2, ' ', 0)
		_, _ = fmt.Fprintf(w, "projection\t%s\nposition\t%s\nevent\t%s\ntype\t%s\nsession\t%s\nstate\t%s\nreason\t%s\n"+
			"attempts\t%d\nparked at\t%s\n", l.Projection, l.Position, l.EventID, l.Type, l.SessionID, l.State,
			l.Reason,
			l.Attempts, l.ParkedAt.Format(time.RFC3339))
		if !l.DroppedAt.IsZero() {
			_, _ = fmt.Fprintf(w, "dropped at\t%s\ndropped by\t%s\nbecause\t%s\n",
				l.DroppedAt.Format(time.RFC3339), l.DroppedBy, l.DropReason)
		}
		_ = w.Flush() // the output remembers what went wrong
	})
}

type deadlettersRetryCmd struct {
	letterName
	remote
}

// errRefused: a retry changed nothing.
var errRefused = errors.New("the view still can't apply the event; leave it out with: turnledger deadletters drop")

// Run retries one letter.
func (c *deadlettersRetryCmd) Run(e *Env) error {
	refused := false
	err := ask(e, c.remote, func(s *client.Client) (client.DeadLetter, error) {
		l, err := s.RetryDeadLetter(e.Ctx, c.Projection, c.Position)
		refused = err == nil && l.State != "applied"
		return l, err
	}, func(l client.DeadLetter) {
		if refused {
			e.print("%s: refused again, after %d attempts: %s", c.letterName, l.Attempts, l.Reason)
			return
		}
		e.print("%s: applied; its session is as the log has it", c.letterName)
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
func (c *deadlettersDropCmd) Run(e *Env) error {
	if c.By == "" {
		if me, err := user.Current(); err == nil {
			c.By = me.Username
		}
	}
	return ask(e, c.remote, func(s *client.Client) (client.DeadLetter, error) {
		return s.DropDeadLetter(e.Ctx, c.Projection, c.Position, c.Reason, c.By)
	}, func(l client.DeadLetter) {
		e.print("%s: dropped by %s; the log keeps the event, and the letter stays in the list",
			c.letterName, l.DroppedBy)
	})
}
