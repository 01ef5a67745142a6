package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// mostDrawn bounds the answers that the page of what if draws: the newest ones.
const mostDrawn = 200

// whatIfView draws what models were told before the answers of a session, and what they would have been told.
type whatIfView struct {
	SessionID, Href string
	Options         promptOptions
	Memory          bool
	Charts          []chart
	Rows            []whatIfRow
	Total           services.WhatIfTotal
	Left            int // how many older answers are not drawn
}

func (v whatIfView) crumbs() []link { return crumbsOf(v.SessionID) }

type whatIfRow struct {
	services.WhatIf
	Href string
}

// whatIf shows what a session's prompts were, and would have been with other settings. A setting that is left out stays
// as it was.
func (s *surface) whatIf(ctx context.Context, r *http.Request) (view, error) {
	id, query := r.PathValue("session_id"), r.URL.Query()
	wire.CallOf(ctx).SetAttribute("session_id", id)
	if _, err := s.reading(ctx, id); err != nil {
		return view{}, err
	}
	options, err := optionsOf(query)
	if err != nil {
		return view{}, err
	}
	if query.Get("max_messages") == "" {
		options.MaxMessages = 0
	}
	v := whatIfView{SessionID: id, Href: sessionHref(id), Options: options, Memory: query.Get("memory") == "true"}
	if err := s.cfg.WhatIfs.WhatIf(ctx, services.WhatIfAsk{
		Sessions: []string{id}, MaxTokens: options.MaxTokens, MaxMessages: options.MaxMessages,
		Summary: options.Summary, Memory: v.Memory,
	}, func(row services.WhatIf) error {
		v.Total.Add(row)
		v.Rows = append(v.Rows, whatIfRow{row, v.Href + "?at=" + row.Position.String() + "#t-" + row.TurnID.String()})
		return nil
	}); err != nil {
		return view{}, err
	}
	v.Left = max(len(v.Rows)-mostDrawn, 0)
	v.Rows = v.Rows[v.Left:]
	v.Charts = v.draw()
	return view{"whatif", "What if", v}, nil
}

// draw returns a chart of the tokens that models were told, and one of those that they would have been.
func (v whatIfView) draw() []chart {
	if len(v.Rows) == 0 {
		return nil
	}
	told, would := make([]float64, len(v.Rows)), make([]float64, len(v.Rows))
	for i, r := range v.Rows {
		told[i], would[i] = float64(r.TokensTold), float64(r.TokensIf)
	}
	name := func(i int) string { return fmt.Sprint("answer ", v.Left+i+1) }
	highest := max(slices.Max(told), slices.Max(would)) // of both, so that they can be compared
	return []chart{
		draw("What models were told", "tokens", told, highest, name),
		draw("With these settings", "tokens", would, highest, name),
	}
}

// person answers with the zip of what is kept of a person.
func (s *surface) person(w http.ResponseWriter, r *http.Request) error {
	policy(w.Header())
	id := r.PathValue("identity_id")
	if events.ValidID(id) != nil {
		return errNothing
	}
	w.Header().Set("Content-Type", "application/zip")
	w.Header().Set("Content-Disposition", `attachment; filename="person.zip"`)
	out := s.api.NewPatient(w, nil)
	defer out.End()
	return s.cfg.People.Archive(r.Context(), id, out)
}
