package wire

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// router finds the route of a request, segment by segment of the path as it was sent.
// http.ServeMux would redirect a path with an empty or dotted id to what it is when cleaned,
// which is another call, and can't match an id that is a slash. For use by many once all
// routes are in.
type router struct {
	here, elsewhere map[int][]route // by number of segments
}

// route is a Route as the router looks for it.
type route struct {
	Route

	pattern  string // "METHOD /path/{id}"
	segments []string
}

func (m *router) add(t Route) {
	added := route{t, t.Method + " " + t.Path, segmentsOf(t.Path)}
	into := &m.here
	if t.Role != "" {
		into = &m.elsewhere
	}
	if *into == nil {
		*into = map[int][]route{}
	}
	n := len(added.segments)
	(*into)[n] = append((*into)[n], added)
}

func (m *router) all() (out []Route) {
	for _, some := range m.here {
		for _, t := range some {
			out = append(out, t.Route)
		}
	}
	return out
}

// find returns the route of a path, or why there is none; with ErrMethod allowed names the
// methods that the path has.
func (m *router) find(method string, segments []string) (t route, allowed string, err error) {
	t, methods := among(m.here, method, segments)
	if t.Handle != nil {
		return t, "", nil
	}
	if t, _ := among(m.elsewhere, method, segments); t.Role != "" {
		return route{}, "", &OtherRole{t.Role}
	}
	if methods == nil {
		return route{}, "", ErrNoRoute
	}
	slices.Sort(methods)
	return route{}, strings.Join(methods, ", "), ErrMethod
}

func among(routes map[int][]route, method string, segments []string) (t route, methods []string) {
	for _, t := range routes[len(segments)] {
		switch {
		case !t.matches(segments):
		case t.Method == method, t.Method == http.MethodGet && method == http.MethodHead:
			return t, nil
		default:
			if methods = append(methods, t.Method); t.Method == http.MethodGet {
				methods = append(methods, http.MethodHead)
			}
		}
	}
	return route{}, methods
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
