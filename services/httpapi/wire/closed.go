package wire

import "net/http"

// Closed answers requests while a process has no API open: the process lives, and all but /healthz is refused with
// Held, in the form of the surface that the path belongs to. Check is the name of what is missing, as /readyz
// shows it.
func Closed(check string, why Reason, surfaces ...Surface) http.Handler {
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
			surfaceOf(forms, r.URL.EscapedPath()).Refuse(w, r, &Held{why})
		}
	})
}
