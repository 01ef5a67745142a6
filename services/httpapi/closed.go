package httpapi

import (
	"net/http"
	"time"
)

// closedFor is when a client that was refused by Closed may come again.
const closedFor = time.Second

// Closed answers a request while the process has no API open, since its log is being replaced by a backup: the
// process lives, and all but /healthz is refused with 503.
func Closed(w http.ResponseWriter, r *http.Request) {
	const why = "the log is being replaced by a backup: come again when the header Retry-After says so"
	switch r.URL.Path {
	case "/healthz":
		writeJSON(w, http.StatusOK, healthJSON{Status: "ok"})
	case "/readyz":
		writeJSON(w, http.StatusServiceUnavailable, healthJSON{Status: "not ready", Checks: map[string]checkJSON{"log": {Reason: why}}})
	default:
		p := newProblem(codeLogUnavailable, why)
		p.after = closedFor
		p.write(w)
	}
}
