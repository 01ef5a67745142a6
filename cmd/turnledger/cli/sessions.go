package cli

import (
	"cmp"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/services/client"
	"github.com/turnledger/turnledger/services/export/explain"
)

type sessionsCmd struct {
	List     sessionsListCmd     `cmd:"" help:"List sessions, the one that was active last first."`
	Show     sessionsShowCmd     `cmd:"" help:"Look at a session."`
	Describe sessionsDescribeCmd `cmd:"" help:"Change a session's title and metadata."`
	Fork     sessionsForkCmd     `cmd:"" help:"Begin a session with the turns of another."`
}

type sessionsListCmd struct {
	Identity only              `help:"Only sessions of this identity."`
	Since    moment            `help:"Only sessions that were active at or after a date, a time, or so long ago (36h)."`
	Until    moment            `help:"Only sessions that were last active before one."`
	Title    only              `help:"Only sessions with this in their title."`
	Metadata map[string]string `help:"Only sessions with this member (key=value); may be given several times." mapsep:"none"`
	Limit    count             `help:"At most so many; the server lists 200 at most." default:"50"`
	Cursor   string            `help:"Go on behind a former list."`
	remote
}

// Run lists sessions.
func (c *sessionsListCmd) Run(e *Env) error {
	return ask(e, c.remote, func(s *client.Client) (client.SessionPage, error) {
		return s.Sessions(e.Ctx, client.SessionQuery{
			IdentityID: string(c.Identity), Since: time.Time(c.Since), Until: time.Time(c.Until),
			Title: string(c.Title), Metadata: c.Metadata, Limit: int(c.Limit), Cursor: c.Cursor,
		})
	}, func(p client.SessionPage) {
		table(e, client.SessionHeading, p.Sessions, client.ListedSession.Cells)
		if p.NextCursor != "" {
			e.printErr("(more: --cursor %s)", p.NextCursor)
		}
	})
}

type sessionsShowCmd struct {
	Session string `arg:"" help:"The session."`
	remote
}

// Run shows a session.
func (c *sessionsShowCmd) Run(e *Env) error {
	return ask(e, c.remote, func(s *client.Client) (client.Session, error) {
		return s.Session(e.Ctx, c.Session)
	}, func(s client.Session) { e.print("%s", s) })
}

type sessionsDescribeCmd struct {
	Session   string            `arg:"" help:"The session."`
	Title     *string           `help:"The title; an empty one takes it away."`
	Metadata  map[string]string `help:"A member to set (key=value); may be given several times." mapsep:"none"`
	Without   []string          `help:"Keys of the metadata to take away."`
	RequestID string            `help:"The same request again changes nothing."`
	remote
}

// Run describes a session.
func (c *sessionsDescribeCmd) Run(e *Env) error {
	d := client.Describe{SessionID: c.Session, RequestID: c.RequestID, Title: c.Title}
	return ask(e, c.remote, func(s *client.Client) (client.Session, error) {
		return s.Describe(e.Ctx, d.With(c.Metadata, c.Without))
	}, func(s client.Session) { e.print("%s", s) })
}

type sessionsForkCmd struct {
	Session   string `arg:"" help:"The session to fork."`
	Turn      only   `help:"Up to and with this turn; the last finalized one by default." xor:"turn"`
	Before    only   `help:"Up to right before this turn." xor:"turn"`
	Branch    only   `help:"The id of the new session; made up by default."`
	RequestID string `help:"The same request again gives the same branch; made up by default."`
	remote
}

// Run forks a session.
func (c *sessionsForkCmd) Run(e *Env) error {
	f := client.Fork{SessionID: c.Session, RequestID: cmp.Or(c.RequestID, uuid.NewString()), TurnID: string(c.Turn),
		BeforeTurnID: string(c.Before), Branch: string(c.Branch)}
	return ask(e, c.remote, func(s *client.Client) (client.Session, error) {
		return s.Fork(e.Ctx, f)
	}, func(s client.Session) { e.print("%s", s) })
}

type contextCmd struct {
	Session      string `arg:"" help:"The session."`
	Message      string `arg:"" help:"The user's current message."`
	SystemPrompt string `help:"System prompt."`
	MaxMessages  count  `help:"Messages of history; 20 by default."`
	Language     string `help:"neutral or translated."`
	Format       string `help:"openai or anthropic."`
	Pending      bool   `help:"With the questions that have no answer yet."`
	Summary      bool   `help:"With a summary in the place of turns that the window leaves out."`
	AsOf         string `name:"as-of" help:"A position (0:42), a date, a time, or so long ago (36h): what would have been sent then."`
	remote
}

// Run prints a prompt, and its source.
func (c *contextCmd) Run(e *Env) error {
	req := client.ContextRequest{
		Message: c.Message, SystemPrompt: c.SystemPrompt, MaxMessages: int(c.MaxMessages),
		Language: c.Language, Format: c.Format, IncludePending: c.Pending,
		Summary: c.Summary,
	}
	if c.AsOf != "" {
		req.AsOf = &client.AsOf{Position: c.AsOf}
		var at moment
		if at.UnmarshalText([]byte(c.AsOf)) == nil {
			req.AsOf = &client.AsOf{Time: time.Time(at)}
		}
	}
	return ask(e, c.remote, func(s *client.Client) (client.Context, error) {
		return s.Context(e.Ctx, c.Session, req)
	}, func(out client.Context) {
		if out.System != "" {
			e.print("system: %s", out.System)
		}
		for _, m := range out.Messages {
			e.print("%s", explain.Message(m))
		}
		e.printErr("(%d turns of history, %d left out, from the %s at %s)",
			out.HistoryTurns, out.DroppedTurns, out.Source, out.Position)
	})
}

type historyCmd struct {
	Session string `arg:"" help:"The session."`
	Limit   count  `help:"Turns, the newest." default:"20"`
	remote
}

// Run prints pairs of question and answer.
func (c *historyCmd) Run(e *Env) error {
	return ask(e, c.remote, func(s *client.Client) ([]client.Pair, error) {
		return s.History(e.Ctx, c.Session, int(c.Limit))
	}, func(pairs []client.Pair) {
		for _, p := range pairs {
			e.print("Q: %s\nA: %s", p.QuestionNeutral, p.AnswerNeutral)
		}
		if len(pairs) == 0 {
			e.printErr("(no finalized turns)")
		}
	})
}

type linkCmd struct {
	Session  string `arg:"" help:"The session."`
	Identity string `arg:"" help:"The identity that it belongs to."`
	remote
}

// Run links a session.
func (c *linkCmd) Run(e *Env) error {
	return ask(e, c.remote, func(s *client.Client) (client.Session, error) {
		return s.LinkSession(e.Ctx, c.Identity, c.Session)
	}, func(out client.Session) {
		e.print("session %s belongs to %s (position %s)", c.Session, out.IdentityID, out.Position)
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

// Run redacts a turn.
func (c *redactCmd) Run(e *Env) error {
	question := fmt.Sprintf("Redact turn %s of session %s for ever?", c.Turn, c.Session)
	if err := e.confirm(c.Yes, question, "not redacted"); err != nil {
		return err
	}
	req := client.Redact{SessionID: c.Session, TurnID: c.Turn, Reason: c.Reason, RedactedBy: c.By}
	return ask(e, c.remote, func(s *client.Client) (client.Turn, error) {
		return s.Redact(e.Ctx, req)
	}, func(out client.Turn) {
		words := "redacted"
		if out.Duplicate {
			words = "was redacted before"
		}
		e.print("turn %s %s (position %s)", c.Turn, words, out.Position)
	})
}
