package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/turnledger/turnledger/services/client"
)

type contextCmd struct {
	Session      string `arg:"" help:"The session."`
	Message      string `arg:"" help:"The user's current message."`
	SystemPrompt string `help:"System prompt."`
	MaxMessages  int    `help:"Messages of history; 20 by default."`
	Language     string `help:"neutral or translated."`
	Format       string `help:"openai or anthropic."`
	Pending      bool   `help:"With the questions that have no answer yet."`
	AsOf         string `name:"as-of" help:"A position (0:42) or a time (RFC 3339): what would have been sent then."`
	remote
}

func (c *contextCmd) Run(e *env) error {
	req := client.ContextRequest{
		Message: c.Message, SystemPrompt: c.SystemPrompt, MaxMessages: c.MaxMessages,
		Language: c.Language, Format: c.Format, IncludePending: c.Pending,
	}
	if c.AsOf != "" {
		req.AsOf = &client.AsOf{Position: c.AsOf}
		if at, err := time.Parse(time.RFC3339, c.AsOf); err == nil {
			req.AsOf = &client.AsOf{Time: at}
		}
	}
	return ask(e, c.remote, func(s *client.Client) (client.Context, error) { return s.Context(e.ctx, c.Session, req) }, func(out client.Context) error { return c.show(e, out) })
}

func (c *contextCmd) show(e *env, out client.Context) error {
	if out.System != "" {
		_, _ = fmt.Fprintf(e.out, "system: %s\n", out.System)
	}
	for _, m := range out.Messages {
		printMessage(e, m)
	}
	_, err := fmt.Fprintf(e.err, "(%d turns of history, %d left out, from the %s at %s)\n", out.HistoryTurns, out.DroppedTurns, out.Source, out.Position)
	return err
}

// printMessage prints a message on a line: its text, or its JSON where it is more
// than a text.
func printMessage(e *env, raw json.RawMessage) {
	var m struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) == nil && len(members) == 2 && json.Unmarshal(raw, &m) == nil {
		_, _ = fmt.Fprintf(e.out, "%s: %s\n", m.Role, m.Content)
		return
	}
	_, _ = fmt.Fprintf(e.out, "%s\n", raw)
}

type historyCmd struct {
	Session string `arg:"" help:"The session."`
	Limit   int    `help:"Turns, the newest." default:"20"`
	remote
}

func (c *historyCmd) Run(e *env) error {
	return ask(e, c.remote, func(s *client.Client) ([]client.Pair, error) { return s.History(e.ctx, c.Session, c.Limit) }, func(pairs []client.Pair) error {
		for _, p := range pairs {
			_, _ = fmt.Fprintf(e.out, "Q: %s\nA: %s\n", p.QuestionNeutral, p.AnswerNeutral)
		}
		if len(pairs) == 0 {
			_, _ = fmt.Fprintln(e.err, "(no finalized turns)")
		}
		return nil
	})
}

type linkCmd struct {
	Session  string `arg:"" help:"The session."`
	Identity string `arg:"" help:"The identity that it belongs to."`
	remote
}

func (c *linkCmd) Run(e *env) error {
	return ask(e, c.remote, func(s *client.Client) (client.Session, error) { return s.LinkSession(e.ctx, c.Identity, c.Session) }, func(out client.Session) error {
		_, err := fmt.Fprintf(e.out, "session %s belongs to %s (position %s)\n", c.Session, out.IdentityID, out.Position)
		return err
	})
}

type redactCmd struct {
	Session string `arg:"" help:"The session."`
	Turn    string `arg:"" help:"The turn; any version of a corrected turn redacts all."`
	Reason  string `help:"Why."`
	By      string `help:"Who."`
	Yes     bool   `help:"Don't ask." short:"y"`
	remote
}

func (c *redactCmd) Run(e *env) error {
	if !c.Yes && term.IsTerminal(int(os.Stdin.Fd())) {
		if ok, err := confirmed(e, fmt.Sprintf("Redact turn %s of session %s for ever?", c.Turn, c.Session)); err != nil || !ok {
			return errors.Join(err, errors.New("not redacted"))
		}
	}
	req := client.Redact{SessionID: c.Session, TurnID: c.Turn, Reason: c.Reason, RedactedBy: c.By}
	return ask(e, c.remote, func(s *client.Client) (client.Turn, error) { return s.Redact(e.ctx, req) }, func(out client.Turn) error {
		said := "redacted"
		if out.Duplicate {
			said = "was redacted before"
		}
		_, err := fmt.Fprintf(e.out, "turn %s %s (position %s)\n", c.Turn, said, out.Position)
		return err
	})
}

// confirmed asks on the terminal; anything but a yes is a no.
func confirmed(e *env, question string) (bool, error) {
	_, _ = fmt.Fprintf(e.err, "%s [y/N] ", question)
	var answer string
	err := interruptible(e.ctx, func() error {
		_, _ = fmt.Fscanln(os.Stdin, &answer) // nothing is a no
		return nil
	})
	return strings.EqualFold(answer, "y") || strings.EqualFold(answer, "yes"), err
}
