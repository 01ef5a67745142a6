package wire

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/turnledger/turnledger/services/access"
)

// Surface is an API as its clients see it. Several stand beside each other; none knows another.
type Surface struct {
	// Prefixes of the surface's paths. A path belongs to the surface with the longest prefix of it, counted in whole
	// segments: "/v1/things" has "/v1/things/a" and not "/v1/thingsome". "/" has every path.
	Prefixes []string
	Routes   []Route
	// Refuse answers a request with an error, in the surface's own form: an error of its handlers, or of this package
	// and of services/access (errors.go). The header Allow is set already where there is one.
	Refuse func(w http.ResponseWriter, r *http.Request, err error)
	// Tell returns what a log may hold of an error: nothing that a client sent. Tell of this package is a start.
	Tell func(err error) string
}

// Route is one call of a surface.
type Route struct {
	// Method and Path, such as /v1/things/{thing_id}. A request has the values of the path as http.Request.PathValue.
	Method, Path string
	// Needs are the scopes of a caller; a route without any is answered to nobody, unless it is Public.
	Needs  access.Scopes
	Public bool
	// Role, where it is not empty, names the processes that answer the call. This process refuses it with OtherRole,
	// and the route needs nothing else.
	Role string
	// Own fails if a request names what the identity of its bound caller may not reach. It is called for bound callers
	// only, before the body is read. A route without Own refuses bound callers.
	Own func(r *http.Request, identityID string) error
	// Long, where it is not 0, says that the call may take that long: it takes a place among the streams, and the
	// server's deadline for an answer is longer by that.
	Long time.Duration
	// Handle answers. An error that it returns is refused in the surface's form, or only logged where the answer has
	// begun.
	Handle func(w http.ResponseWriter, r *http.Request) error
}

// has reports whether a path lies below a prefix.
func has(prefix, path string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(prefix, "/"))
	return ok && (rest == "" || rest[0] == '/')
}

// surfaceOf returns the surface that a path belongs to.
func surfaceOf(surfaces []*Surface, path string) *Surface {
	found, longest := &bare, -1
	for _, s := range surfaces {
		for _, p := range s.Prefixes {
			if len(p) > longest && has(p, path) {
				found, longest = s, len(p)
			}
		}
	}
	return found
}

// bare is the surface of paths that no other has.
var bare = Surface{
	Refuse: func(w http.ResponseWriter, _ *http.Request, _ error) {
		http.Error(w, http.StatusText(http.StatusNotFound), http.StatusNotFound)
	},
	Tell: Tell,
}

// router finds the route of a request, segment by segment of the path as it was sent.
// http.ServeMux would redirect a path with an empty or dotted id to its cleaned form,
// which is another call, and can't match an id that is a slash. Safe for concurrent use
// once all routes are in.
type router map[int][]route // by number of segments

// route is a Route as the router looks for it.
type route struct {
	Route

	pattern  string // "METHOD /path/{id}"
	segments []string
}

func (m router) add(t Route) {
	segments := segmentsOf(t.Path)
	m[len(segments)] = append(m[len(segments)], route{t, t.Method + " " + t.Path, segments})
}

// find returns the route of a path, or why there is none; with ErrMethod allowed names the
// methods that the path has.
func (m router) find(method string, segments []string) (found route, allowed string, err error) {
	var elsewhere *OtherRole
	var methods []string
	for _, t := range m[len(segments)] {
		same := t.Method == method || t.Method == http.MethodGet && method == http.MethodHead
		switch {
		case !t.matches(segments):
		case same && t.Role == "":
			return t, "", nil
		case same:
			elsewhere = &OtherRole{t.Role}
		case t.Role != "": // its methods are not allowed here
		case t.Method == http.MethodGet:
			methods = append(methods, t.Method, http.MethodHead)
		default:
			methods = append(methods, t.Method)
		}
	}
	switch {
	case elsewhere != nil:
		return route{}, "", elsewhere
	case methods == nil:
		return route{}, "", ErrNoRoute
	}
	slices.Sort(methods)
	return route{}, strings.Join(methods, ", "), ErrMethod
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

// bind sets the path values of the request, and the pattern that logs and metrics
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
