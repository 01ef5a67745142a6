package v1

import (
	"net/http"
	"reflect"

	"github.com/turnledger/turnledger/services/access"
)

// Route is a call as tests see it.
type Route struct {
	Needs  access.Scopes
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

// Unset are the ports that an API was not given.
func (a *API) Unset() (names []string) {
	v := reflect.ValueOf(a.cfg)
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Interface && f.IsNil() {
			names = append(names, v.Type().Field(i).Name)
		}
	}
	return names
}
