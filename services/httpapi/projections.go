package httpapi

import (
	"context"

	"github.com/turnledger/turnledger/events"
)

type projectionsOut struct{ Body projectionsJSON }

type projectionsJSON struct {
	Projections []projectionJSON `json:"projections" nullable:"false"`
}

type projectionJSON struct {
	Name        string           `json:"name"`
	Partition   int              `json:"partition"`
	Position    events.Position  `json:"position" doc:"Up to where it has applied the log" example:"0:42"`
	Head        *events.Position `json:"head" doc:"The log's last event; null while the log does not tell it" example:"0:42"`
	LagEvents   *uint64          `json:"lag_events" doc:"null while the log does not tell its head, and where the position is in another log"`
	LagSeconds  *float64         `json:"lag_seconds" doc:"Age of the first event that is not applied yet"`
	Rate        float64          `json:"rate" doc:"Events a second that this process applied, over the last ten seconds"`
	State       string           `json:"state" doc:"starting, live, standby (another process feeds it), not_fed (this process does not feed the view), retrying, rebuilding, rebuild_failed, failed, stopped; unknown while the log, or the store of a view that is not fed here, does not answer"`
	Generation  int              `json:"generation"`
	Rebuildable bool             `json:"rebuildable"`
	LastError   *string          `json:"last_error"`
	ETASeconds  float64          `json:"eta_seconds,omitempty" doc:"Time left, of a rebuild"`
}

func (a *API) projections(ctx context.Context, _ *struct{}) (*projectionsOut, error) {
	out := &projectionsOut{projectionsJSON{Projections: []projectionJSON{}}}
	if a.cfg.Projections == nil {
		return out, nil
	}
	list, err := a.cfg.Projections.Projections(ctx)
	if err != nil {
		return nil, err
	}
	for i := range list {
		p := &list[i]
		row := projectionJSON{
			Name: p.Name, Partition: p.Partition, Position: p.Position, Rate: p.Rate, State: p.State,
			Generation:  int(p.Generation), //nolint:gosec // counts rebuilds
			Rebuildable: p.Rebuildable, LastError: optional(&p.LastError), ETASeconds: p.ETA.Seconds(),
		}
		if !p.HeadUnknown {
			row.Head = &p.Head
		}
		if !p.HeadUnknown && !p.LagUnknown {
			row.LagEvents, row.LagSeconds = &p.LagEvents, &p.LagSeconds
		}
		out.Body.Projections = append(out.Body.Projections, row)
	}
	return out, nil
}
