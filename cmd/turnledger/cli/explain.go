package cli

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/services/client"
	"github.com/turnledger/turnledger/services/export/explain"
)

type explainCmd struct {
	Session     string `arg:"" help:"The session."`
	Turn        string `arg:"" help:"The turn."`
	Text        bool   `help:"With the texts."`
	MaxMessages count  `help:"As the prompt was asked for; 20 by default."`
	MaxTokens   count  `help:"As the prompt was asked for; no bound by default."`
	IdleTimeout string `help:"As the prompt was asked for; the server's by default."`
	Language    string `help:"neutral or translated."`
	Pending     bool   `help:"With the questions that had no answer yet."`
	Summary     bool   `help:"With a summary in the place of turns that the window left out."`
	remote
}

// Run prints what the log has of a turn, and what its prompt could see.
func (c *explainCmd) Run(e *Env) error {
	id, err := uuid.Parse(c.Turn)
	if err != nil || id.String() != c.Turn {
		return fmt.Errorf("%w: TURN must be the id of a turn, which every answer about it names", config.ErrUsage)
	}
	return c.dial(1, func(s *client.Client) error {
		x, err := explain.New(c.Session, id, func(session string) iter.Seq2[[]byte, error] {
			return lines(s.Events(client.EventQuery{SessionID: session}).All(e.Ctx))
		}, explain.Texts(c.Text))
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
			var text strings.Builder
			err := x.Print(&text)
			e.print("%s", strings.TrimSuffix(text.String(), "\n"))
			return err
		}
	})
}

// lines returns the events of a reading as they came.
func lines(of iter.Seq2[client.Event, error]) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for ev, err := range of {
			if !yield(ev.JSON, err) {
				return
			}
		}
	}
}

// prompt asks the server for the turn's prompt, as of its start.
func (c *explainCmd) prompt(e *Env, s *client.Client, x *explain.Explanation) error {
	got, err := s.Context(e.Ctx, x.SessionID, client.ContextRequest{
		Message: cmp.Or(x.Question, "(no text)"), TurnID: x.Root.String(), MaxMessages: int(c.MaxMessages),
		MaxTokens: int(c.MaxTokens), IdleTimeout: c.IdleTimeout, Language: c.Language, IncludePending: c.Pending,
		Summary: c.Summary, AsOf: &client.AsOf{Position: x.AsOf},
	})
	if err != nil {
		return err
	}
	through := ""
	if got.Summary != nil {
		through = got.Summary.ThroughTurnID
	}
	x.Saw(explain.Context{
		HistoryMessages: got.HistoryMessages, HistoryTurns: got.HistoryTurns, DroppedTurns: got.DroppedTurns,
		TurnIDs: got.HistoryTurnIDs, SummarisedThrough: through, Messages: got.Messages,
	}, c.Pending)
	return nil
}
