package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"
)

// probeDeadline bounds one check of readiness.
const probeDeadline = 2 * time.Second

type healthJSON struct {
	Status string               `json:"status"`
	Checks map[string]checkJSON `json:"checks,omitempty"`
}

type checkJSON struct {
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"`
}

// Reason is an error whose text may stand in the answer of /readyz, which anybody may read.
type Reason string

func (r Reason) Error() string { return string(r) }

// healthz tells that the process is alive, and nothing of what it needs.
func (a *API) healthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, healthJSON{Status: "ok"})
}

// readyz asks everything that requests need, at once. Why something does not answer
// stands in the server's log, and in the answer only where it is a Reason.
func (a *API) readyz(w http.ResponseWriter, r *http.Request) {
	errs := probeAll(r.Context(), a.cfg.Checks)
	out, status := healthJSON{Status: "ok", Checks: map[string]checkJSON{}}, http.StatusOK
	for i, c := range a.cfg.Checks {
		var reason Reason
		_ = errors.As(errs[i], &reason)
		out.Checks[c.Name] = checkJSON{errs[i] == nil, string(reason)}
		if errs[i] != nil {
			out.Status, status = "not ready", http.StatusServiceUnavailable
			a.cfg.Logger.Warn("a dependency does not answer", "check", c.Name, "err", errs[i])
		}
	}
	writeJSON(w, status, out)
}

func probeAll(ctx context.Context, checks []Check) []error {
	ctx, cancel := context.WithTimeout(ctx, probeDeadline)
	defer cancel()
	errs := make([]error, len(checks))
	var wg sync.WaitGroup
	for i, c := range checks {
		wg.Go(func() { errs[i] = c.Probe(ctx) })
	}
	wg.Wait()
	return errs
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone, then
}
