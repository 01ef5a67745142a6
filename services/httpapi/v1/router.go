package v1

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/turnledger/turnledger/services/access"
)

// router finds the handler of a request, segment by segment of the path as it was
// sent. http.ServeMux would redirect a path with an empty or dotted id to what it
// is when cleaned, which is another call, and can't match an id that is a slash.
// For use by many once all handlers are in.
type router struct {
	routes map[int][]route // by number of segments
	// admit is asked before a handler runs, and then enter for a place.
	admit func(*http.Request, route) error
	enter func(route) (leave func(), err error)
	// elsewhere are calls that processes of another role answer.
	elsewhere []elsewhere
}

// elsewhere are the calls of a role that this process has not.
type elsewhere struct {
	role  string
	calls *router
}

var _ huma.Adapter = (*router)(nil)

// route is a call: what a caller needs for it, whether it holds callers who are bound to
// an identity to that by itself, and whether it may take long.
type route struct {
	method, pattern string
	segments        []string
	needs           access.Scopes
	bounds, long    bool
	handle          http.HandlerFunc
}

// Handle adds a call of huma's; operation has given it its scopes.
func (m *router) Handle(op *huma.Operation, handle func(huma.Context)) {
	needs, _ := op.Metadata[metaScopes].(access.Scopes)
	t := newRoute(needs, op.Method+" "+op.Path, func(w http.ResponseWriter, r *http.Request) { handle(humago.NewContext(op, r, w)) })
	t.bounds, t.long = op.Metadata[metaBounds] != nil, op.Metadata[metaLong] != nil
	m.add(t)
}

// answer adds the handler of a pattern, "METHOD /path/{id}", for callers with scopes.
func (m *router) answer(needs access.Scopes, pattern string, handle http.HandlerFunc) {
	m.add(newRoute(needs, pattern, handle))
}

func newRoute(needs access.Scopes, pattern string, handle http.HandlerFunc) route {
	method, path, _ := strings.Cut(pattern, " ")
	return route{method: method, pattern: pattern, segments: segmentsOf(path), needs: needs, handle: handle}
}

func (m *router) add(t route) {
	if m.routes == nil {
		m.routes = map[int][]route{}
	}
	n := len(t.segments)
	m.routes[n] = append(m.routes[n], t)
}

// find gives the call of a path, or the methods that the path has.
func (m *router) find(method string, segments []string) (t route, found bool, allowed []string) {
	for _, t := range m.routes[len(segments)] {
		switch {
		case !t.matches(segments):
		case t.method == method, t.method == http.MethodGet && method == http.MethodHead:
			return t, true, nil
		default:
			if allowed = append(allowed, t.method); t.method == http.MethodGet {
				allowed = append(allowed, http.MethodHead)
			}
		}
	}
	return route{}, false, allowed
}

// ServeHTTP runs the handler, or answers that there is none.
func (m *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	segments := segmentsOf(r.URL.EscapedPath())
	t, found, allowed := m.find(r.Method, segments)
	if found {
		t.bind(r, segments)
		m.run(w, r, t)
		return
	}
	for _, e := range m.elsewhere {
		if _, found, _ := e.calls.find(r.Method, segments); found {
			newProblem(codeNotFound, "this process has not the role "+e.role+", which answers this call: ask one that has it, by --url or TURNLEDGER_URL").write(w)
			return
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

// run lets a request through to its handler, or says why not.
func (m *router) run(w http.ResponseWriter, r *http.Request, t route) {
	err := m.admit(r, t)
	var leave func()
	if err == nil {
		leave, err = m.enter(t)
	}
	if err != nil {
		p := problemOf(err)
		callOf(r.Context()).err = p
		p.write(w)
		return
	}
	defer leave()
	if t.long {
		// The server's own deadline is for calls that are not. Who streams sets others.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(chatDeadline + writeTime)) // a writer of a test may have none
	}
	t.handle(w, r)
}

// within writes, or reads, a piece of a long body in its own time. Between pieces there is
// no deadline: HTTP/2 ends a stream at one, also a stream that nobody writes to just then.
func within(set func(time.Time) error, limit time.Duration, piece func() error) error {
	_ = set(time.Now().Add(limit)) // a writer of a test may have none
	err := piece()
	if err == nil || errors.Is(err, io.EOF) {
		_ = set(time.Time{})
	}
	return err
}

// writeTime is how long an answer that was long in the making may take to be sent.
const writeTime = 30 * time.Second

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
