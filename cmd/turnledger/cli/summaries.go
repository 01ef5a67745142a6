package cli

import (
	"cmp"
	"fmt"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/services/client"
)

type summariesCmd struct {
	Session    string `arg:"" help:"The session."`
	Turn       string `arg:"" optional:"" help:"The last turn that the summary covers; it begins with the first visible one."`
	Text       string `arg:"" optional:"" help:"The summary to record; without it those that are valid are listed."`
	Translated string `help:"The summary in the user's language."`
	Model      string `help:"What made the summary."`
	RequestID  string `help:"The same request again records nothing."`
	remote
}

// Run lists the valid summaries, or records one.
func (c *summariesCmd) Run(e *Env) error {
	switch {
	case c.Turn == "":
		return c.list(e)
	case c.Text == "":
		return fmt.Errorf("%w: summaries: give the TEXT of the summary, too", config.ErrUsage)
	}
	return ask(e, c.remote, func(s *client.Client) (client.Summary, error) {
		return s.Summarize(e.Ctx, client.Summarize{
			SessionID: c.Session, RequestID: cmp.Or(c.RequestID, uuid.NewString()), ThroughTurnID: c.Turn,
			SummaryNeutral: c.Text, SummaryTranslated: c.Translated, Model: c.Model,
		})
	}, func(s client.Summary) { e.print("%s", s) })
}

func (c *summariesCmd) list(e *Env) error {
	return ask(e, c.remote, func(s *client.Client) ([]client.Summary, error) {
		return s.Summaries(e.Ctx, c.Session)
	}, func(list []client.Summary) {
		for _, m := range list {
			e.print("%s\n%s\n", m, m.SummaryNeutral)
		}
		if len(list) == 0 {
			e.printErr("(no valid summaries)")
		}
	})
}
