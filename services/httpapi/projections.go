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
	Name        string          `json:"name"`
	Partition   int             `json:"partition"`
	Position    events.Position `json:"position" doc:"Up to where it has applied the log" example:"0:42"`
	Head        events.Position `json:"head" doc:"The log's last event" example:"0:42"`
	LagEvents   uint64          `json:"lag_events"`
	LagSeconds  float64         `json:"lag_seconds" doc:"Age of the last event applied, while it is behind"`
	State       string          `json:"state" doc:"live, starting, retrying, failed, stopped; rebuilding or rebuild_failed for a generation beside the served one"`
	Generation  int             `json:"generation"`
	Rebuildable bool            `json:"rebuildable"`
	LastError   *string         `json:"last_error"`
	Rate        float64         `json:"rate,omitempty" doc:"Events a second, of a rebuild"`
	ETASeconds  float64         `json:"eta_seconds,omitempty" doc:"Time left, of a rebuild"`
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
		out.Body.Projections = append(out.Body.Projections, projectionJSON{
			Name: p.Name, Partition: p.Partition, Position: p.Position, Head: p.Head,
			LagEvents: p.LagEvents, LagSeconds: p.LagSeconds, State: p.State,
			Generation: p.Generation, Rebuildable: p.Rebuildable, LastError: optional(&p.LastError),
			Rate: p.Rate, ETASeconds: p.ETA.Seconds(),
		})
	}
	return out, nil
}
