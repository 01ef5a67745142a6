package wire

import (
	"net/http"
	"slices"
)

// exposed are the headers of an answer that a web page of another origin may read.
const exposed = "X-Request-Id, X-Should-Retry, Retry-After, Turnledger-Receipt, Location, ETag, Stream-Next-Offset, " +
	"Stream-Cursor, Stream-Up-To-Date, Stream-Closed, X-Turnledger-Session, X-Turnledger-Turn, " +
	"X-Turnledger-Position, X-Turnledger-Recorded, X-Thread-Id, X-Vercel-Ai-Ui-Message-Stream"

// mayCall reports whether a request comes from a web page that may make the call, or, if it asks that for its browser,
// the call that it is about to make.
func (a *API) mayCall(r *http.Request, s *Surface, segments []string) bool {
	origins := r.Header["Origin"]
	if len(origins) != 1 || !slices.Contains(a.cfg.Origins, origins[0]) {
		return false
	}
	method := r.Method
	if asks(r) {
		method = r.Header.Get("Access-Control-Request-Method")
	}
	t, _, err := a.router.find(method, segments)
	return s.CORS || err == nil && t.CORS
}

// asks reports whether a browser asks what a web page may do: so it does before it sends a call with a key.
func asks(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}

// lets lets the browser of a web page read the answer. It reports whether that was all the browser asked.
func lets(w http.ResponseWriter, r *http.Request) bool {
	h := w.Header()
	h["Access-Control-Allow-Origin"], h["Vary"] = r.Header["Origin"], []string{"Origin"}
	h["Access-Control-Expose-Headers"] = []string{exposed}
	if !asks(r) {
		return false
	}
	h["Access-Control-Allow-Methods"] = []string{"GET, HEAD, POST, PUT, PATCH, DELETE"}
	h["Access-Control-Allow-Headers"] = r.Header["Access-Control-Request-Headers"]
	h["Access-Control-Max-Age"] = []string{"600"}
	w.WriteHeader(http.StatusNoContent)
	return true
}
