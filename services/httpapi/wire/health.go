package wire

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
	OK     bool       `json:"ok"`
	Since  *time.Time `json:"since,omitempty"`
	Reason string     `json:"reason,omitempty"`
}

// Check is something that must answer before this process may take requests, or that it
// can do without (Optional). Probe must end with its ctx.
type Check struct {
	Name     string
	Optional bool
	Probe    func(ctx context.Context) error
}

// Reason is an error whose text may stand in the answer of /readyz, which anybody may read.
type Reason string

func (r Reason) Error() string { return string(r) }

// healthz reports that the process is alive, and nothing of what it needs.
func (a *API) healthz(w http.ResponseWriter, _ *http.Request) {
	writeHealth(w, http.StatusOK, healthJSON{Status: "ok"})
}

// outages remembers since when dependencies are out.
type outages struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// saw notes how a dependency was found, and returns since when it is out.
func (o *outages) saw(name string, out bool, now time.Time) *time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !out {
		delete(o.since, name)
		return nil
	}
	if o.since == nil {
		o.since = map[string]time.Time{}
	}
	if o.since[name].IsZero() {
		o.since[name] = now
	}
	since := o.since[name].UTC()
	return &since
}

// readyz asks everything that requests need, at once. Why something does not answer
// stands in the server's log, and in the answer only where it is a Reason. It is degraded,
// and ready, where all that is out can be done without.
func (a *API) readyz(w http.ResponseWriter, r *http.Request) {
	errs := probeAll(r.Context(), a.cfg.Checks)
	out, status := healthJSON{Status: "ok", Checks: map[string]checkJSON{}}, http.StatusOK
	for i, c := range a.cfg.Checks {
		var reason Reason
		_ = errors.As(errs[i], &reason)
		since := a.outages.saw(c.Name, errs[i] != nil, a.cfg.Now())
		out.Checks[c.Name] = checkJSON{errs[i] == nil, since, string(reason)}
		if errs[i] == nil {
			continue
		}
		if !c.Optional {
			out.Status, status = "not ready", http.StatusServiceUnavailable
		} else if status == http.StatusOK {
			out.Status = "degraded"
		}
		a.cfg.Logger.Warn("a dependency does not answer", "check", c.Name, "since", since, "err", errs[i])
	}
	writeHealth(w, status, out)
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

func writeHealth(w http.ResponseWriter, status int, v healthJSON) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone, then
}
