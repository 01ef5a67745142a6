package cli

import (
	"fmt"
	"time"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
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
		e.print("receipt %s\nsee how far it is: turnledger erase --receipt %s", id, id)
		return nil
	}
	return ask(e, c.remote, func(s *client.Client) (client.Receipt, error) {
		return s.Receipt(e.Ctx, id)
	}, func(r client.Receipt) { showReceipt(e, r) })
}

// wait follows an erasure to its end, even over a restart of the server.
func (c *eraseCmd) wait(e *Env, id string) error {
	return c.dialTwice(func(first, later *client.Client) error {
		r, err := first.Receipt(e.Ctx, id)
		if err == nil && !r.Complete() {
			bar := newCounter(e.Err, "erase", r.Unit())
			err = later.AwaitReceipt(e.Ctx, id, lookEvery, bar.Reach)
			bar.Done()
		}
		switch {
		case e.Ctx.Err() != nil:
			return fmt.Errorf("stopped waiting; it goes on in the server: "+
				"turnledger erase --receipt %s shows how far", id)
		case err != nil:
			return fmt.Errorf("%w (what was asked for goes on when a server runs: "+
				"turnledger erase --receipt %s shows how far)", c.explain(e.Ctx, err), id)
		default:
			return nil
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
	e.print("receipt %s: %s, %s, asked for at %s", r.ReceiptID, what, r.State, r.RequestedAt.Format(time.RFC3339))
	for _, p := range r.Places {
		line := fmt.Sprintf("  %-8s %s", p.Place, p.State)
		if p.Erased != nil {
			line += fmt.Sprintf(", %d erased", *p.Erased)
		}
		if !p.ErasedAt.IsZero() {
			line += " at " + p.ErasedAt.Format(time.RFC3339)
		}
		if p.Why != "" {
			line += ": " + p.Why
		}
		e.print("%s", line)
	}
	if r.Branches != nil && r.SharedTurns != nil && *r.Branches > 0 {
		e.print("  %d branches lost %d turns that they shared", *r.Branches, *r.SharedTurns)
	}
}

type retentionCmd struct {
	DryRun bool `help:"Only say what would go."`
	remote
}

// Run removes what is too old, or with --dry-run prints what it would remove.
func (c *retentionCmd) Run(e *Env) error {
	return ask(e, c.remote, func(s *client.Client) (client.Swept, error) {
		return s.Sweep(e.Ctx, c.DryRun)
	}, func(n client.Swept) {
		words := "gone"
		if n.DryRun {
			words = "would go"
		}
		e.print("%s: %d anonymous sessions with %d events, %d turns of %d linked sessions",
			words, n.Anonymous.Sessions, n.Anonymous.Events, n.Linked.Turns, n.Linked.Sessions)
	})
}
