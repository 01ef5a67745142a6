package v1

import (
	"context"
	"net/http"

	"github.com/turnledger/turnledger/services/access"
)

// retains adds the call that takes out what is too old.
func (a *surface) retains() {
	call(a, operation(
		"sweep", access.Admin, http.MethodPost, "/retention", "Take out what is too old, or with dry_run only count it",
	), a.sweep)
}

type sweepIn struct {
	DryRun string `query:"dry_run" doc:"true: count only"`
}

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

func (a *surface) sweep(ctx context.Context, in *sweepIn) (*reply[sweptJSON], error) {
	out := ok(sweptJSON{})
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
