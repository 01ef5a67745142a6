package cli

import (
	"strings"
	"time"

	"github.com/turnledger/turnledger/services/client"
)

type searchCmd struct {
	Query    []string `arg:"" help:"Words that are all in a question, or in an answer; phrases in quotation marks; -word leaves out (with --mode words)."`
	Mode     string   `help:"words, meaning or hybrid; what the server has by default."`
	In       string   `help:"question, answer or both." default:"both" enum:"question,answer,both"`
	Identity only     `help:"Only turns of this identity."`
	Session  only     `help:"Only turns of this session."`
	Since    moment   `help:"Only turns that started at or after a date, a time, or so long ago (36h)."`
	Until    moment   `help:"Only turns that started before one."`
	Language string   `help:"neutral or translated; both by default."`
	MinScore float64  `help:"Only hits with at least that score."`
	Limit    count    `help:"At most so many; the server lists 100 at most." default:"10"`
	Cursor   string   `help:"Go on behind a former search."`
	remote
}

// Run finds turns.
func (c *searchCmd) Run(e *Env) error {
	return ask(e, c.remote, func(s *client.Client) (client.SearchPage, error) {
		return s.Search(e.Ctx, client.SearchQuery{
			Query: strings.Join(c.Query, " "), Mode: c.Mode, In: c.In, IdentityID: string(c.Identity),
			SessionID: string(c.Session), Since: time.Time(c.Since), Until: time.Time(c.Until),
			Language: c.Language, MinScore: c.MinScore, Limit: int(c.Limit), Cursor: c.Cursor,
		})
	}, func(p client.SearchPage) {
		switch {
		case p.Mode != "words":
			e.printErr("(%s; the index is %d events behind)", p.Mode, p.LagEvents)
		case c.Mode == "":
			e.printErr("(by words)")
		}
		table(e, client.HitHeading, p.Hits, client.Hit.Cells)
		if p.NextCursor != "" {
			e.printErr("(more: --cursor %s)", p.NextCursor)
		}
	})
}

type similarCmd struct {
	Question []string `arg:"" help:"A question that may have been answered before."`
	Identity only     `help:"Only turns of this identity."`
	MinScore float64  `help:"Only turns that are at least that near, from 0 to 1."`
	Limit    count    `help:"At most so many; the server lists 100 at most." default:"10"`
	remote
}

// Run finds similar turns.
func (c *similarCmd) Run(e *Env) error {
	return ask(e, c.remote, func(s *client.Client) (client.SimilarPage, error) {
		return s.Similar(e.Ctx, client.SimilarQuery{
			Question: strings.Join(c.Question, " "), IdentityID: string(c.Identity),
			Limit: int(c.Limit), MinScore: c.MinScore,
		})
	}, func(p client.SimilarPage) { table(e, client.SimilarHeading, p.Hits, client.SimilarHit.Cells) })
}
