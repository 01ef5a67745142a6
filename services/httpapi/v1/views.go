package v1

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services/access"
)

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
	State       string           `json:"state" doc:"starting, live, outdated (it follows the log, and has to be rebuilt), standby (another process feeds it), not_fed (this process does not feed the view), retrying, rebuilding, rebuild_failed, failed, stopped; unknown while the log, or the store of a view that is not fed here, does not answer"`
	Generation  int              `json:"generation"`
	Rebuildable bool             `json:"rebuildable"`
	LastError   *string          `json:"last_error"`
	ETASeconds  float64          `json:"eta_seconds,omitempty" doc:"Time left, of a rebuild"`
}

func newProjectionJSON(p *projections.Status) projectionJSON {
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
	return row
}

func (a *surface) projections(ctx context.Context, _ *struct{}) (projectionsJSON, error) {
	if a.cfg.Projections == nil {
		return projectionsJSON{[]projectionJSON{}}, nil
	}
	list, err := a.cfg.Projections.Projections(ctx)
	return projectionsJSON{mapped(list, newProjectionJSON)}, err
}

type rebuildIn struct {
	Name string `path:"name"`
}

type rebuildJSON struct {
	Name       string `json:"name"`
	Generation uint64 `json:"generation" doc:"Of the tables or keys that are being filled"`
}

func (a *surface) rebuild(ctx context.Context, in *rebuildIn) (rebuildJSON, error) {
	n, err := a.cfg.Keeper.Rebuild(ctx, in.Name)
	return rebuildJSON{in.Name, n}, ofView(err)
}

func (a *surface) cancelRebuild(ctx context.Context, in *rebuildIn) (rebuildJSON, error) {
	n, err := a.cfg.Keeper.CancelRebuild(ctx, in.Name)
	return rebuildJSON{in.Name, n}, err
}

// ofView marks the error of a view whose store does not answer. One without a mark means the audit's tables, which
// other requests ask.
func ofView(err error) error {
	if !errors.Is(err, projections.ErrUnavailable) {
		return err
	}
	return viewError(err)
}

// verifyLine is a line of the answer; exactly one of its members is set.
type verifyLine struct {
	Progress   *verifyProgress         `json:"progress,omitempty"`
	Difference *projections.Difference `json:"difference,omitempty"`
	Result     *verifyResult           `json:"result,omitempty"`
	Problem    *problem                `json:"problem,omitempty"`
}

type verifyProgress struct {
	Events uint64 `json:"events"`
	Of     uint64 `json:"of"`
}

type verifyResult struct {
	Name        string `json:"name"`
	Sessions    int    `json:"sessions"`
	Differences int    `json:"differences"`
}

type verifyIn struct {
	Name   string `path:"name"`
	Sample number `query:"sample" doc:"Sessions that are drawn from those that the view holds; all by default"`
}

// verify answers with a line of JSON for each step; the last line is the result or a problem. It has no deadline: it
// ends when the client goes.
func (a *surface) verify(w http.ResponseWriter, r *http.Request, in *verifyIn) error {
	out, begun, found := a.wire.NewPatient(w, nil), false, 0
	defer out.End()
	line := func(l verifyLine) error {
		if !begun {
			begun = true
			w.Header().Set("Content-Type", "application/x-ndjson")
		}
		raw, err := json.Marshal(l)
		if err != nil {
			return err
		}
		return out.Send(append(raw, '\n'))
	}
	sessions, err := a.cfg.Keeper.Verify(r.Context(), in.Name, int(in.Sample), func(done, of uint64) error {
		return line(verifyLine{Progress: &verifyProgress{done, of}})
	}, func(d projections.Difference) error {
		found++
		return line(verifyLine{Difference: &d})
	})
	switch err = ofView(err); {
	case err == nil:
		_ = line(verifyLine{Result: &verifyResult{in.Name, sessions, found}})
	case begun:
		_ = line(verifyLine{Problem: problemOf(err)}) // an error means that the client has gone
	}
	return err
}

type keysJSON struct {
	Keys []access.Key `json:"keys" nullable:"false" doc:"Of the file of keys that the server reads; empty without one"`
}

// keys lists the API keys without their secrets.
func (a *surface) keys(context.Context, *struct{}) (keysJSON, error) {
	if a.cfg.Keys == nil {
		return keysJSON{[]access.Key{}}, nil
	}
	list, err := a.cfg.Keys()
	return keysJSON{append([]access.Key{}, list...)}, err // never null
}
