package wire

import (
	"context"
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
	OK     bool      `json:"ok"`
	Since  time.Time `json:"since,omitzero"`
	Reason string    `json:"reason,omitempty"`
}

// Check is a dependency that must work before this process may take requests. If an Optional dependency fails, the
// process is degraded but takes requests. Probe must end with its ctx.
type Check struct {
	Name     string
	Optional bool
	Probe    func(ctx context.Context) error
}

// public is an error with a part that anybody may read in the answer of /readyz.
type public interface {
	error
	Public() string
}

// healthz reports that the process is alive. It probes no dependency.
func healthz(w http.ResponseWriter, _ *http.Request) {
	WriteJSON(w, http.StatusOK, healthJSON{Status: "ok"})
}

// readyz probes all dependencies at once. The server's log says why a dependency fails; the answer shows only the
// public part of the error. If only optional dependencies fail, the status is degraded, and the process is ready.
func (a *API) readyz(w http.ResponseWriter, r *http.Request) {
	errs := probeAll(r.Context(), a.cfg.Checks)
	out, status := healthJSON{Status: "ok", Checks: map[string]checkJSON{}}, http.StatusOK
	for i, c := range a.cfg.Checks {
		if errs[i] == nil {
			a.outages.Delete(c.Name)
			out.Checks[c.Name] = checkJSON{OK: true}
			continue
		}
		since, _ := a.outages.LoadOrStore(c.Name, time.Now().UTC())
		shown := checkJSON{Since: since.(time.Time)}
		if not, ok := errors.AsType[public](errs[i]); ok {
			shown.Reason = not.Public()
		}
		out.Checks[c.Name] = shown
		if !c.Optional {
			out.Status, status = "not ready", http.StatusServiceUnavailable
		} else if status == http.StatusOK {
			out.Status = "degraded"
		}
		a.cfg.Logger.Warn("a dependency does not answer", "check", c.Name, "since", since, "err", errs[i])
	}
	WriteJSON(w, status, out)
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

// Closed answers requests while a process has no API open. It refuses all calls but /healthz with Suspended, in the
// form of the surface that the path belongs to. /readyz shows check, the name of the missing dependency, and why.
func Closed(check string, why string, surfaces ...Surface) http.Handler {
	forms := make([]*Surface, len(surfaces))
	for i := range surfaces {
		forms[i] = &surfaces[i]
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/healthz":
			healthz(w, r)
		case "/readyz":
			checks := map[string]checkJSON{check: {Reason: why}}
			WriteJSON(w, http.StatusServiceUnavailable, healthJSON{Status: "not ready", Checks: checks})
		default:
			surfaceOf(forms, r.URL.EscapedPath()).Refuse(w, r, &Suspended{why})
		}
	})
}
