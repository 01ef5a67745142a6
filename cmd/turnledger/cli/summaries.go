package cli

import (
	"cmp"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/services/client"
)

type summariesCmd struct {
	Session    string `arg:"" help:"The session."`
	Turn       string `arg:"" help:"The last turn that the summary covers; it begins with the first visible one."`
	Text       string `arg:"" help:"The summary."`
	Translated string `help:"The summary in the user's language."`
	Model      string `help:"What made the summary."`
	RequestID  string `help:"The same request again records nothing."`
	remote
}

// Run records a summary.
func (c *summariesCmd) Run(e *Env) error {
	return ask(e, c.remote, func(s *client.Client) (client.Summary, error) {
		return s.Summarize(e.Ctx, client.Summarize{
			SessionID: c.Session, RequestID: cmp.Or(c.RequestID, uuid.NewString()), ThroughTurnID: c.Turn,
			SummaryNeutral: c.Text, SummaryTranslated: c.Translated, Model: c.Model,
		})
	}, func(s client.Summary) { e.print("%s", s) })
}
