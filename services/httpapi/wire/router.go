package wire

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

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
