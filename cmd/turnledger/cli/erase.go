package cli

import (
	"fmt"
	"time"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/services/client"
)

type eraseCmd struct {
	ID       string `arg:"" optional:"" name:"session" help:"Close this session for ever and erase it."`
	Session  string `help:"The same."`
	Identity string `help:"Erase all sessions of this identity, also those linked later."`
	Receipt  string `help:"Look at the receipt of an erasure, or of a redaction by its position."`
	Reason   string `help:"Why; kept in the log for ever."`
	By       string `help:"Who; kept in the log for ever."`
	Wait     bool   `help:"Wait until it is gone from everywhere."`
	Yes      bool   `help:"Don't ask." short:"y"`
	remote
}

// Run asks for an erasure, and prints its receipt.
func (c *eraseCmd) Run(e *Env) error {
	named := 0
	for _, s := range []string{c.ID, c.Session, c.Identity, c.Receipt} {
		if s != "" {
			named++
		}
	}
	if named != 1 {
		return fmt.Errorf("%w: erase: name a session, an --identity or a --receipt", config.ErrUsage)
	}
	c.Session += c.ID
	id := c.Receipt
	if id == "" {
		what := "session " + c.Session
		if c.Identity != "" {
			what = "identity " + c.Identity + " with all its sessions"
		}
		if err := e.confirm(c.Yes, "Erase "+what+" for ever?", "not erased"); err != nil {
			return err
		}
		err := c.dial(firstTries, func(s *client.Client) (err error) {
			id, err = s.Erase(e.Ctx, client.Erase{
				SessionID: c.Session, IdentityID: c.Identity, Reason: c.Reason, RedactedBy: c.By,
			})
			return c.explain(e.Ctx, err)
		})
		if err != nil {
			return err
		}
	}
	if c.Wait {
		if err := c.wait(e, id); err != nil {
			return err
		}
	}
	if c.Receipt == "" && !c.Wait && !c.JSON {
		e.say("receipt %s\nsee how far it is: turnledger erase --receipt %s", id, id)
		return nil
	}
	return ask(e, c.remote, func(s *client.Client) (client.Receipt, error) {
		return s.Receipt(e.Ctx, id)
	}, func(r client.Receipt) { showReceipt(e, r) })
}

// wait follows an erasure to its end, also over a restart of a server that has answered once.
func (c *eraseCmd) wait(e *Env, id string) error {
	return c.dialTwice(func(s, later *client.Client) error {
		var bar *progress
		for ; ; s = later {
			r, err := s.Receipt(e.Ctx, id)
			switch {
			case e.Ctx.Err() != nil:
				return fmt.Errorf("stopped waiting; it goes on in the server: turnledger erase --receipt %s shows "+
					"how far", id)
			case err != nil:
				return fmt.Errorf("%w (what was asked for goes on when a server runs: turnledger erase --receipt %s "+
					"shows how far)",
					c.explain(e.Ctx, err), id)
			case r.Complete():
				return nil
			}
			if bar == nil {
				units := "events"
				if r.Kind == "identity" {
					units = "sessions"
				}
				bar = newCounter(e.Err, "erase", units)
				defer bar.done()
			}
			if p := r.Progress; p != nil && p.Sessions > 0 {
				bar.reach(uint64(max(p.SessionsDone, 0)), uint64(p.Sessions))
			} else if p != nil {
				bar.reach(uint64(max(p.Erased, 0)), uint64(max(p.Events, 0)))
			}
			pause.For(e.Ctx, lookEvery)
		}
	})
}

func showReceipt(e *Env, r client.Receipt) {
	what := r.Kind + " "
	switch r.Kind {
	case "turn":
		what += r.TurnID
	case "identity":
		what += r.IdentityID
	default:
		what += r.SessionID
	}
	e.say("receipt %s: %s, %s, asked for at %s", r.ReceiptID, what, r.State, r.RequestedAt.Format(time.RFC3339))
	for _, p := range r.Places {
		line := fmt.Sprintf("  %-8s %s", p.Place, p.State)
		if p.Erased != nil {
			line += fmt.Sprintf(", %d erased", *p.Erased)
		}
		if !p.ErasedAt.IsZero() {
			line += " at " + p.ErasedAt.Format(time.RFC3339)
		}
		e.say("%s", line)
	}
}

type retentionCmd struct {
	DryRun bool `help:"Only say what would go."`
	remote
}

// Run takes out what is too old, or says what would go.
func (c *retentionCmd) Run(e *Env) error {
	return ask(e, c.remote, func(s *client.Client) (client.Swept, error) {
		return s.Sweep(e.Ctx, c.DryRun)
	}, func(n client.Swept) {
		said := "gone"
		if n.DryRun {
			said = "would go"
		}
		e.say("%s: %d anonymous sessions with %d events, %d turns of %d linked sessions",
			said, n.Anonymous.Sessions, n.Anonymous.Events, n.Linked.Turns, n.Linked.Sessions)
	})
}
