package wire

import (
	"net/http"
	"slices"
)

// exposed are the headers of an answer that a web page of another origin may read.
const exposed = "X-Request-Id, X-Should-Retry, Retry-After, Turnledger-Receipt, X-Turnledger-Session, " +
	"X-Turnledger-Turn, X-Turnledger-Position, X-Turnledger-Recorded"

// mayCall reports whether a request comes from a web page that may call the surface.
func (a *API) mayCall(r *http.Request, s *Surface) bool {
	origins := r.Header["Origin"]
	return s.CORS && len(origins) == 1 && slices.Contains(a.cfg.Origins, origins[0])
}

// preflight lets the browser of a web page read the answer. It reports whether that was all the browser
// asked: a browser asks so before it sends a call with a key.
func (a *API) preflight(w http.ResponseWriter, r *http.Request, s *Surface) bool {
	if !a.mayCall(r, s) {
		return false
	}
	h := w.Header()
	h["Access-Control-Allow-Origin"], h["Vary"] = r.Header["Origin"], []string{"Origin"}
	h["Access-Control-Expose-Headers"] = []string{exposed}
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h["Access-Control-Allow-Methods"] = []string{"GET, POST, DELETE"}
	h["Access-Control-Allow-Headers"] = r.Header["Access-Control-Request-Headers"]
	h["Access-Control-Max-Age"] = []string{"600"}
	w.WriteHeader(http.StatusNoContent)
	return true
}
