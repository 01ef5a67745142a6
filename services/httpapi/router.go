package httpapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// router finds the handler of a request, segment by segment of the path as it was
// sent. http.ServeMux would redirect a path with an empty or dotted id to what it
// is when cleaned, which is another call, and can't match an id that is a slash.
// For use by many once all handlers are in.
type router struct {
	routes map[int][]route // by number of segments
}

var _ humago.Mux = (*router)(nil)

type route struct {
	method, pattern string
	segments        []string
	handle          http.HandlerFunc
}

// HandleFunc adds the handler of a pattern, "METHOD /path/{id}".
func (m *router) HandleFunc(pattern string, handle func(http.ResponseWriter, *http.Request)) {
	method, path, _ := strings.Cut(pattern, " ")
	segments := segmentsOf(path)
	if m.routes == nil {
		m.routes = map[int][]route{}
	}
	m.routes[len(segments)] = append(m.routes[len(segments)], route{method, pattern, segments, handle})
}

// ServeHTTP runs the handler, or answers that there is none.
func (m *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	segments := segmentsOf(r.URL.EscapedPath())
	var allowed []string
	for _, t := range m.routes[len(segments)] {
		switch {
		case !t.matches(segments):
		case t.method == r.Method, t.method == http.MethodGet && r.Method == http.MethodHead:
			t.bind(r, segments)
			t.handle(w, r)
			return
		default:
			if allowed = append(allowed, t.method); t.method == http.MethodGet {
				allowed = append(allowed, http.MethodHead)
			}
		}
	}
	if allowed == nil {
		newProblem(codeNotFound, "there is no such call: /docs lists them").write(w)
		return
	}
	slices.Sort(allowed)
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	newProblem(codeMethodNotAllowed, "the call has another method: the header Allow names it").write(w)
}

func segmentsOf(path string) []string { return strings.Split(strings.TrimPrefix(path, "/"), "/") }

func wildcard(segment string) bool { return strings.HasPrefix(segment, "{") }

func (t route) matches(segments []string) bool {
	for i, s := range t.segments {
		if s != segments[i] && !wildcard(s) {
			return false
		}
	}
	return true
}

// bind gives the request its path values, and the pattern that logs and metrics
// name it by.
func (t route) bind(r *http.Request, segments []string) {
	r.Pattern = t.pattern
	for i, s := range t.segments {
		if !wildcard(s) {
			continue
		}
		value, err := url.PathUnescape(segments[i])
		if err != nil {
			value = segments[i] // can't be: net/http has parsed the path
		}
		r.SetPathValue(s[1:len(s)-1], value)
	}
}
