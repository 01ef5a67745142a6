package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/services/client"
	"github.com/turnledger/turnledger/services/export/explain"
)

type explainCmd struct {
	Session     string `arg:"" help:"The session."`
	Turn        string `arg:"" help:"The turn."`
	Text        bool   `help:"With the texts."`
	MaxMessages int    `help:"As the prompt was asked for; 20 by default."`
	MaxTokens   int    `help:"As the prompt was asked for; no bound by default."`
	IdleTimeout string `help:"As the prompt was asked for; the server's by default."`
	Language    string `help:"neutral or translated."`
	Pending     bool   `help:"With the questions that had no answer yet."`
	remote
}

// Run tells what the log has of a turn, and what its prompt could see.
func (c *explainCmd) Run(e *Env) error {
	id, err := uuid.Parse(c.Turn)
	if err != nil || id.String() != c.Turn {
		return fmt.Errorf("%w: TURN must be the id of a turn, which every answer about it names", config.ErrUsage)
	}
	return c.dial(1, func(s *client.Client) error {
		x, err := explain.New(c.Session, id, lines(s.Events(client.EventQuery{SessionID: c.Session}).All(e.Ctx)), c.Text)
		if errors.Is(err, explain.ErrNoTurn) {
			return err
		}
		if err == nil {
			err = c.prompt(e, s, x)
		}
		switch {
		case err != nil:
			return c.explain(e.Ctx, err)
		case c.JSON:
			return e.printJSON(x)
		default:
			showExplanation(e, x)
			return nil
		}
	})
}

// lines are the events of a reading as they came.
func lines(of iter.Seq2[client.Event, error]) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for ev, err := range of {
			if !yield(ev.JSON, err) {
				return
			}
		}
	}
}

// prompt asks what the turn's prompt was, as of its start.
func (c *explainCmd) prompt(e *Env, s *client.Client, x *explain.Explanation) error {
	got, err := s.Context(e.Ctx, c.Session, client.ContextRequest{
		Message: cmp.Or(x.Question, "(no text)"), TurnID: x.Root.String(), MaxMessages: c.MaxMessages,
		MaxTokens: c.MaxTokens, IdleTimeout: c.IdleTimeout, Language: c.Language, IncludePending: c.Pending,
		AsOf: &client.AsOf{Position: x.AsOf},
	})
	if err != nil {
		return err
	}
	p := explain.Context{
		HistoryMessages: got.HistoryMessages, HistoryTurns: got.HistoryTurns, DroppedTurns: got.DroppedTurns,
	}
	for _, raw := range got.Messages {
		var m struct {
			Role string `json:"role"`
		}
		_ = json.Unmarshal(raw, &m) // a message of the server's
		p.Roles = append(p.Roles, m.Role)
	}
	if c.Text {
		p.Messages = got.Messages
	}
	x.Saw(p, c.Pending)
	return nil
}

func showExplanation(e *Env, x *explain.Explanation) {
	e.say("Turn %s of session %s\n\nEvents:", x.TurnID, x.SessionID)
	for _, ev := range x.Events {
		note := ""
		switch {
		case ev.Problem != "":
			note = "  (without effect: " + ev.Problem + ")"
		case ev.Redacted:
			note = "  (redacted)"
		}
		e.say("  %-8s %s  %s%s", ev.Position, ev.RecordedAt.Format(time.RFC3339Nano), ev.Type, note)
		if len(ev.Data) > 0 {
			e.say("           %s", ev.Data)
		}
	}
	e.say("\nIts prompt, as of %s with today's redactions: %d messages of %d turns, %d left out, then the question.",
		x.AsOf, x.Context.HistoryMessages, x.Context.HistoryTurns, x.Context.DroppedTurns)
	for _, m := range x.Context.Messages {
		e.printMessage(m)
	}
	if len(x.Turns) > 0 {
		e.say("\nTurns before it:")
	}
	for _, t := range x.Turns {
		e.say("  %-8s %s  %s", t.Position, t.TurnID, t.Seen)
	}
}
