package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// retains adds the call that takes out what is too old.
func (a *API) retains(api huma.API) {
	register(a, api, operation(
		"sweep", Admin, http.MethodPost, "/retention", "Take out what is too old, or with dry_run only count it",
	), a.sweep)
}

type sweepIn struct {
	DryRun string `query:"dry_run" doc:"true: count only"`
}

type sweepOut struct{ Body sweptJSON }

type sweptJSON struct {
	DryRun    bool `json:"dry_run"`
	Anonymous struct {
		Sessions int `json:"sessions"`
		Events   int `json:"events"`
	} `json:"anonymous" doc:"Sessions that leave the log"`
	Linked struct {
		Sessions int `json:"sessions"`
		Turns    int `json:"turns"`
	} `json:"linked" doc:"Turns that are redacted"`
}

func (a *API) sweep(ctx context.Context, in *sweepIn) (*sweepOut, error) {
	out := &sweepOut{}
	switch in.DryRun {
	case "", "false":
	case "true":
		out.Body.DryRun = true
	default:
		return nil, invalid("dry_run", "must be true or false")
	}
	n, err := a.cfg.Retention.Sweep(ctx, out.Body.DryRun)
	if err != nil {
		return nil, err
	}
	out.Body.Anonymous.Sessions, out.Body.Anonymous.Events = n.Sessions, n.Events
	out.Body.Linked.Sessions, out.Body.Linked.Turns = n.LinkedSessions, n.Turns
	return out, nil
}
