package v1

import (
	"bytes"
	"cmp"
	"context"
	"encoding"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/wire"
	"github.com/turnledger/turnledger/services/problems"
)

// operation is a call of docs/contract.md#scopes: the part that huma describes, and what the route needs besides.
type operation struct {
	huma.Operation

	needs access.Scopes
	// anyOf are scopes of which one is enough, besides those that the call needs.
	anyOf access.Scopes
	// bounds: the call itself restricts bound callers to what they may reach; later: it admits its caller itself.
	bounds, later bool
	// begins: a bound caller may name a session that does not exist.
	begins bool
	// deadline of the call; 0 for none.
	deadline time.Duration
	// long is how long the call may take, if that is longer than for other calls.
	long time.Duration
}

// op declares a call by its id, the scopes that it needs, its method and path, and the statuses of its errors besides
// those of every call.
func op(id string, needs access.Scopes, pattern, summary string, errors ...int) operation {
	method, path, _ := strings.Cut(pattern, " ")
	return operation{needs: needs, Operation: huma.Operation{
		OperationID: id, Method: method, Path: "/v1" + path, Summary: summary,
		Security: []map[string][]string{{securityScheme: needs.Names()}},
		Errors:   append(errors, http.StatusUnauthorized, http.StatusForbidden, http.StatusServiceUnavailable),
	}}
}

// takesLong marks a call that may take long.
func (o operation) takesLong() operation {
	o.long = chatDeadline
	return o
}

// any lets callers in that have one of some scopes; the call itself asks for more.
func (o operation) any(scopes access.Scopes) operation {
	o.anyOf, o.Security = scopes, nil
	for _, name := range scopes.Names() {
		o.Security = append(o.Security, map[string][]string{securityScheme: {name}})
	}
	return o
}

// boundsItself marks a call that itself restricts bound callers to what they may reach.
func (o operation) boundsItself() operation {
	o.bounds = true
	return o
}

// beginsSessions marks a call with which a bound caller may begin the session in its path.
func (o operation) beginsSessions() operation {
	o.begins = true
	return o
}

// admitsItself marks a call that admits its caller once it has read which session it is about.
func (o operation) admitsItself() operation {
	o.later = true
	return o
}

// within gives a call a deadline.
func (o operation) within(d time.Duration) operation {
	o.deadline = d
	return o
}

// accepted marks a call that begins its work and answers before the work is done.
func (o operation) accepted() operation {
	o.DefaultStatus = http.StatusAccepted
	return o
}

// forPages reports whether web pages of other origins may make the call: none that makes tokens or operates the system.
func (o operation) forPages() bool {
	return (o.needs|o.anyOf)&(access.Admin|access.TokensIssue) == 0 && !strings.HasPrefix(o.Path, "/v1/receipts")
}

// call adds a call that answers with JSON within its deadline.
func call[I, O any](a *surface, handle func(context.Context, *I) (O, error), op operation) {
	status := cmp.Or(op.DefaultStatus, http.StatusOK)
	raw[O](a, func(w http.ResponseWriter, r *http.Request, in *I) error {
		out, err := handle(r.Context(), in)
		if err != nil {
			return err
		}
		answered := status
		if made, ok := any(&out).(interface{ existedBefore() bool }); ok && made.existedBefore() {
			answered = http.StatusOK // what was recorded before is not created again
		}
		wire.WriteJSON(w, answered, &out)
		return nil
	}, op.within(cmp.Or(op.long, a.cfg.Deadline)))
}

// anyAnswer is the O of a call whose answer the operation's Responses describe, or whose answer is not described.
type anyAnswer = func(huma.Context)

// raw adds a call that writes its answer itself. The answer is described as an O. Its parameters and its body are an I.
func raw[O, I any](a *surface, handle func(http.ResponseWriter, *http.Request, *I) error, op operation) {
	route := wire.Route{
		Method: op.Method, Path: op.Path, Role: a.role, Needs: op.needs, Any: op.anyOf, Long: op.long,
		Admit: a.admits(op), Deadline: op.deadline, CORS: op.forPages(),
	}
	if a.role == "" {
		read := reader[I](a.cfg.MaxBody, op.RequestBody != nil)
		route.Handle = func(w http.ResponseWriter, r *http.Request) error {
			in, err := read(r)
			if err != nil {
				return err
			}
			return handle(w, r, in)
		}
		huma.Register(a.spec, op.Operation, func(context.Context, *I) (*struct{ Body O }, error) {
			return nil, wire.ErrNoRoute // no request comes here
		})
	}
	a.routes = append(a.routes, route)
}

// reader returns a function that reads the parameters and the body of a request into an I. The body is the field Body.
// If Body is a pointer, the request may lack a body; the handler then gets an empty one, never nil. Without Body the
// handler reads the body itself, or else the request must have none.
func reader[I any](most int64, readsItself bool) func(*http.Request) (*I, error) {
	t := reflect.TypeFor[I]()
	params := paramsOf(t)
	session := slices.IndexFunc(params, func(p param) bool { return p.name == "session_id" })
	body, hasBody := t.FieldByName("Body")
	var known bodyFields
	if hasBody {
		known = bodyFieldsOf(body.Type)
	}
	return func(r *http.Request) (*I, error) {
		in := new(I)
		v := reflect.ValueOf(in).Elem()
		query, err := queryOf(r, params, known)
		switch {
		case err != nil:
		case hasBody:
			err = readBody(r, most, v.FieldByIndex(body.Index), known)
		case !readsItself:
			err = noBody(r, most, params)
		}
		if err != nil {
			return nil, err
		}
		for _, p := range params {
			if err := p.set(v.Field(p.field), r, query); err != nil {
				return nil, err
			}
		}
		if session >= 0 && v.Field(params[session].field).Len() > 0 {
			noteSession(r.Context(), v.Field(params[session].field).String())
		}
		return in, nil
	}
}

// Why a parameter or a member is refused.
const (
	notOnce = "must stand there once"
	isEmpty = "must not be empty: leave it out"
)

// queryOf returns the query of a request. It refuses a parameter that the call does not have, and one that is empty or
// comes twice: with each of them, who wants a part could be given everything, and who wants to count could erase. Only
// an empty cursor is that of the first page.
func queryOf(r *http.Request, params []param, body bodyFields) (url.Values, error) {
	if r.URL.RawQuery == "" {
		return nil, nil
	}
	query := r.URL.Query()
	var wrong fieldErrors
	for name, values := range query {
		i := slices.IndexFunc(params, func(p param) bool { return p.in == "query" && p.name == name })
		switch {
		case i < 0:
			wrong = append(wrong, *invalid(printable(name, "query"), noParameter(name, params, body)))
		case len(values) > 1 && !params[i].list:
			wrong = append(wrong, *invalid(name, notOnce))
		case slices.Contains(values, "") && name != "cursor":
			wrong = append(wrong, *invalid(name, isEmpty))
		}
	}
	return query, wrong.sorted()
}

// noParameter says what a caller can use who sent a parameter that the call does not have.
func noParameter(name string, params []param, body bodyFields) string {
	const none = "is no parameter of this call"
	there := shown(params)
	switch {
	case body[name] != nil:
		return none + ": send it in the body"
	case there == nil:
		return none + ", which has none"
	default:
		return none + ": " + listed(there)
	}
}

// listed names what there is.
func listed(names []string) string {
	if len(names) == 1 {
		return "there is " + names[0]
	}
	return "there are " + strings.Join(names, ", ")
}

// noBody refuses a request with a body.
func noBody(r *http.Request, most int64, params []param) error {
	data, err := wire.ReadBody(r, most)
	if err != nil || len(bytes.TrimSpace(data)) == 0 {
		return err
	}
	why := "is not taken by this call"
	if there := shown(params); there != nil {
		why += ": its parameters stand in the query: " + strings.Join(there, ", ")
	}
	return invalid("body", why)
}

// readBody reads the body of a request.
func readBody(r *http.Request, most int64, into reflect.Value, known bodyFields) error {
	data, err := wire.ReadBody(r, most)
	if err != nil {
		return err
	}
	optional := into.Kind() == reflect.Pointer
	if optional {
		into.Set(reflect.New(into.Type().Elem()))
		into = into.Elem()
	}
	switch empty := len(bytes.TrimSpace(data)) == 0; {
	case !empty:
		err = decode(data, into, known)
	case !optional:
		err = problems.New(problems.CodeMalformed, "the body is empty: send a JSON object")
	}
	return cmp.Or(err, speaksForItself(r.Context(), into, known))
}

// param is a field that is filled from the path, the query or a header.
type param struct {
	field    int
	in, name string
	// list: there may be several, also with commas between.
	list bool
	// hidden: the description does not show it.
	hidden bool
}

func paramsOf(t reflect.Type) (out []param) {
	for i := range t.NumField() {
		f := t.Field(i)
		for _, in := range []string{"path", "query", "header"} {
			if name, _, _ := strings.Cut(f.Tag.Get(in), ","); name != "" {
				list := f.Type == reflect.TypeFor[[]string]()
				out = append(out, param{i, in, name, list, f.Tag.Get("hidden") != ""})
			}
		}
	}
	return out
}

// shown returns the names of the parameters that a query may have.
func shown(params []param) (names []string) {
	for _, p := range params {
		if p.in == "query" && !p.hidden {
			names = append(names, p.name)
		}
	}
	return names
}

// set reads a parameter. An empty header counts as absent.
func (p param) set(field reflect.Value, r *http.Request, query url.Values) error {
	var text string
	switch p.in {
	case "path":
		text = r.PathValue(p.name)
	case "header":
		values := r.Header.Values(p.name)
		if len(values) > 1 && p.name != "Accept" {
			return invalid(p.name, notOnce)
		}
		text = strings.Join(values, ",")
	case "query":
		if p.list {
			return p.setList(field, query[p.name])
		}
		text = query.Get(p.name)
	}
	own, ok := field.Addr().Interface().(encoding.TextUnmarshaler)
	switch {
	case !ok:
		field.SetString(text)
		return nil
	case text == "" && p.in != "path":
		return nil
	}
	err := own.UnmarshalText([]byte(text))
	if wrong, ok := errors.AsType[*decide.Invalid](err); ok {
		wrong.Field = p.name
	}
	return err
}

// setList reads a parameter of which there may be several.
func (p param) setList(field reflect.Value, values []string) error {
	var list []string
	for one := range strings.SplitSeq(strings.Join(values, ","), ",") {
		if one = strings.TrimSpace(one); one != "" {
			list = append(list, one)
		}
	}
	if values != nil && list == nil {
		return invalid(p.name, isEmpty)
	}
	field.Set(reflect.ValueOf(list))
	return nil
}
