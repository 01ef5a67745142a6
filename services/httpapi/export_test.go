package httpapi

import "net/http"

// Route is a call as tests see it.
type Route struct {
	Needs  Scopes
	Bounds bool
}

// Public is what calls have that are answered to anybody.
const Public = public

// Routes are all calls of an API, by pattern.
func (a *API) Routes() map[string]Route {
	out := map[string]Route{}
	for _, some := range a.router.routes {
		for _, t := range some {
			out[t.pattern] = Route{t.needs, t.bounds}
		}
	}
	return out
}

// Forget declares a call without a scope.
func (a *API) Forget(pattern string) {
	a.router.answer(0, pattern, func(http.ResponseWriter, *http.Request) { panic("it was answered") })
}
