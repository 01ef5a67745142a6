package wire

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/turnledger/turnledger/services/access"
)

// Surface is an API as its clients see it. Several surfaces stand beside each other, without knowing each other.
type Surface struct {
	// Prefixes of the surface's paths. A path belongs to the surface with its longest prefix, in whole segments:
	// "/v1/things" is a prefix of "/v1/things/a" but not of "/v1/thingsome". "/" is a prefix of every path.
	Prefixes []string
	Routes   []Route
	// Refuse answers a request with an error in the surface's own form. The error comes from the surface's handlers,
	// this package (errors.go) or services/access. The header Allow is already set if it is needed.
	Refuse func(w http.ResponseWriter, r *http.Request, err error)
	// SafeText returns what a log may hold of an error: nothing that a client sent. It can build on this package's
	// SafeText.
	SafeText func(err error) string
	// Token returns the token of a request's caller. Nil means the one in the header Authorization.
	Token func(r *http.Request) (token string, ok bool)
	// CORS lets web pages of Config.Origins make every call of the surface.
	CORS bool
}

// Route is one call of a surface.
type Route struct {
	// Method and Path, such as /v1/things/{thing_id}. http.Request.PathValue returns the values of the path.
	Method, Path string
	// Needs are the scopes that a caller must have. A route without any is refused to everybody, unless it is Public.
	Needs access.Scopes
	// Any are scopes of which a caller must have at least one, besides those that it Needs.
	Any    access.Scopes
	Public bool
	// CORS lets web pages of Config.Origins make the call.
	CORS bool
	// Role, if set, names the role whose processes answer the call. This process refuses it, and the route needs no
	// other fields.
	Role string
	// Admit lets a request in, before its body is read, by what the caller reaches and how often it may ask; or it
	// returns ErrLater. What was not admitted is not answered. A route without it, unless it is Public, is for nobody.
	Admit func(r *http.Request) error
	// Deadline of the request once it is admitted; 0 for none.
	Deadline time.Duration
	// Long, if above 0, is how long the call may take. The call then takes a place among the streams, and the server's
	// deadline for the answer is longer by Long.
	Long time.Duration
	// Handle answers. If it returns an error, the error is refused in the surface's form, or only logged if the answer
	// has begun.
	Handle func(w http.ResponseWriter, r *http.Request) error
}

// Within reports whether a path belongs to a prefix, as Surface.Prefixes says.
func Within(prefix, path string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(prefix, "/"))
	return ok && (rest == "" || rest[0] == '/')
}

// surfaceOf returns the surface that a path belongs to.
func surfaceOf(surfaces []*Surface, path string) *Surface {
	found, longest := &bare, -1
	for _, s := range surfaces {
		for _, p := range s.Prefixes {
			if len(p) > longest && Within(p, path) {
				found, longest = s, len(p)
			}
		}
	}
	return found
}

// bare is the surface of paths that belong to no other surface.
var bare = Surface{
	Refuse: func(w http.ResponseWriter, _ *http.Request, _ error) {
		http.Error(w, http.StatusText(http.StatusNotFound), http.StatusNotFound)
	},
	SafeText: func(err error) string { return SafeText(err) },
}

// router finds the route of a request, segment by segment, by the path as it was sent. http.ServeMux would redirect a
// path with an empty or dotted id to its cleaned form, which is another call, and can't match an id that is a slash.
// Safe for concurrent use once all routes are added.
type router map[int][]route // by number of segments

// route is a Route in the form that the router searches.
type route struct {
	Route

	pattern  string // "METHOD /path/{id}"
	segments []string
}

func (m router) add(t Route) {
	segments := segmentsOf(t.Path)
	m[len(segments)] = append(m[len(segments)], route{t, t.Method + " " + t.Path, segments})
}

// find returns the route of a path, or why there is none. With ErrMethod, allowed names the methods that the path has.
func (m router) find(method string, segments []string) (found route, allowed string, err error) {
	var elsewhere error
	var methods []string
	for _, t := range m[len(segments)] {
		same := t.Method == method || t.Method == http.MethodGet && method == http.MethodHead
		switch {
		case !t.matches(segments):
		case same && t.Role == "":
			return t, "", nil
		case same:
			elsewhere = otherRole(t.Role)
		case t.Role != "": // this process does not allow the methods of another role's call
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

// bind sets the request's path values, and the pattern that names it in logs and metrics.
func (t route) bind(r *http.Request, segments []string) {
	r.Pattern = t.pattern
	for i, s := range t.segments {
		if !wildcard(s) {
			continue
		}
		value, err := url.PathUnescape(segments[i])
		if err != nil {
			value = segments[i] // never happens: net/http has parsed the path
		}
		r.SetPathValue(s[1:len(s)-1], value)
	}
}
