package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/term"

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

// Run asks for an erasure, and tells of its receipt.
func (c *eraseCmd) Run(e *env) error {
	named := 0
	for _, s := range []string{c.ID, c.Session, c.Identity, c.Receipt} {
		if s != "" {
			named++
		}
	}
	if named != 1 {
		return fmt.Errorf("%w: erase: name a session, an --identity or a --receipt", errUsage)
	}
	c.Session += c.ID
	id := c.Receipt
	if id == "" {
		if err := c.confirm(e); err != nil {
			return err
		}
	}
	s, err := c.dial(firstTries, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	if id == "" {
		id, err = s.Erase(e.ctx, client.Erase{SessionID: c.Session, IdentityID: c.Identity, Reason: c.Reason, RedactedBy: c.By})
		if err != nil {
			return c.explain(e.ctx, err)
		}
	}
	if c.Wait {
		if err := c.wait(e, s, id); err != nil {
			return err
		}
	}
	if c.Receipt == "" && !c.Wait && !c.JSON {
		_, err := fmt.Fprintf(e.out, "receipt %s\nsee how far it is: turnledger erase --receipt %s\n", id, id)
		return err
	}
	return ask(e, c.remote, func(s *client.Client) (client.Receipt, error) { return s.Receipt(e.ctx, id) }, func(r client.Receipt) error { return showReceipt(e, r) })
}

func (c *eraseCmd) confirm(e *env) error {
	what := "session " + c.Session
	if c.Identity != "" {
		what = "identity " + c.Identity + " with all its sessions"
	}
	if c.Yes || !term.IsTerminal(int(os.Stdin.Fd())) {
		return nil
	}
	if ok, err := confirmed(e, "Erase "+what+" for ever?"); err != nil || !ok {
		return errors.Join(err, errors.New("not erased"))
	}
	return nil
}

// wait follows an erasure to its end, also over a restart of the server.
func (c *eraseCmd) wait(e *env, s *client.Client, id string) error {
	later, err := c.dial(laterTries, nil)
	if err != nil {
		return err
	}
	defer later.Close()
	var bar *counter
	for ; ; s = later {
		r, err := s.Receipt(e.ctx, id)
		switch {
		case e.ctx.Err() != nil:
			return fmt.Errorf("stopped waiting; it goes on in the server: turnledger erase --receipt %s shows how far", id)
		case err != nil:
			return fmt.Errorf("%w (what was asked for goes on when a server runs: turnledger erase --receipt %s shows how far)", c.explain(e.ctx, err), id)
		}
		if r.Complete() {
			return nil
		}
		if bar == nil {
			units := "events"
			if r.Kind == "identity" {
				units = "sessions"
			}
			bar = newCounter(e.err, "erase", units)
			defer bar.done()
		}
		if p := r.Progress; p != nil && p.Sessions > 0 {
			bar.at(uint64(max(p.SessionsDone, 0)), uint64(p.Sessions))
		} else if p != nil {
			bar.at(uint64(max(p.Erased, 0)), uint64(max(p.Events, 0)))
		}
		select {
		case <-e.ctx.Done():
		case <-time.After(lookEvery):
		}
	}
}

func showReceipt(e *env, r client.Receipt) error {
	what := r.Kind + " "
	switch r.Kind {
	case "turn":
		what += r.TurnID
	case "identity":
		what += r.IdentityID
	default:
		what += r.SessionID
	}
	_, err := fmt.Fprintf(e.out, "receipt %s: %s, %s, asked for at %s\n", r.ReceiptID, what, r.State, r.RequestedAt.Format(time.RFC3339))
	for _, p := range r.Places {
		line := fmt.Sprintf("  %-8s %s", p.Place, p.State)
		if p.Erased != nil {
			line += fmt.Sprintf(", %d erased", *p.Erased)
		}
		if !p.ErasedAt.IsZero() {
			line += " at " + p.ErasedAt.Format(time.RFC3339)
		}
		_, err = fmt.Fprintln(e.out, line)
	}
	return err
}

type retentionCmd struct {
	DryRun bool `help:"Only say what would go."`
	remote
}

// Run takes out what is too old, or says what would go.
func (c *retentionCmd) Run(e *env) error {
	return ask(e, c.remote, func(s *client.Client) (client.Swept, error) { return s.Sweep(e.ctx, c.DryRun) }, func(n client.Swept) error {
		said := "gone"
		if n.DryRun {
			said = "would go"
		}
		_, err := fmt.Fprintf(e.out, "%s: %d anonymous sessions with %d events, %d turns of %d linked sessions\n",
			said, n.Anonymous.Sessions, n.Anonymous.Events, n.Linked.Turns, n.Linked.Sessions)
		return err
	})
}
