package v1

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/queryparam"

	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/httpapi/wire"
)

// reply is the answer of a call: a body of JSON, with a status where it is not the call's own.
type reply[T any] struct {
	Status int
	Body   T
}

func ok[T any](body T) *reply[T] { return &reply[T]{Body: body} }

// call adds a call that answers with JSON within the deadline of a call.
func call[I, O any](a *surface, op huma.Operation, handle func(context.Context, *I) (*reply[O], error)) {
	callWithin(a, a.cfg.Deadline, op, handle)
}

// callWithin adds a call with a deadline of its own.
func callWithin[I, O any](
	a *surface, limit time.Duration, op huma.Operation, handle func(context.Context, *I) (*reply[O], error),
) {
	status := cmp.Or(op.DefaultStatus, http.StatusOK)
	add[I, reply[O]](a, op, func(w http.ResponseWriter, r *http.Request, in *I) error {
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		out, err := handle(ctx, in)
		if err != nil {
			return err
		}
		wire.WriteJSON(w, cmp.Or(out.Status, status), out.Body)
		return nil
	})
}

// raw adds a call that writes its answer by itself, for as long as it takes.
func raw[I any](a *surface, op huma.Operation, handle func(http.ResponseWriter, *http.Request, *I) error) {
	add[I, struct{ Body func(huma.Context) }](a, op, handle)
}

// add adds the route of a call, whose parameters and body are an I, and describes it. O is what the
// description says of the answer.
func add[I, O any](a *surface, op huma.Operation, handle func(http.ResponseWriter, *http.Request, *I) error) {
	needs, _ := op.Metadata[metaScopes].(access.Scopes)
	long, _ := op.Metadata[metaLong].(time.Duration)
	route := wire.Route{
		Method: op.Method, Path: op.Path, Role: a.role, Needs: needs, Long: long,
		Own: a.owned(op.Path, op.Metadata[metaBounds] != nil),
	}
	if a.role != "" {
		a.routes = append(a.routes, route)
		return
	}
	read := reader[I](a.cfg.MaxBody, op.Metadata[metaOptional] != nil)
	route.Handle = func(w http.ResponseWriter, r *http.Request) error {
		in, err := read(r)
		if err != nil {
			return err
		}
		return handle(w, r, in)
	}
	a.routes = append(a.routes, route)
	if b, ok := any(new(I)).(bodied); ok {
		op.Metadata[metaBody] = b.bodyType()
	}
	huma.Register(a.spec, op, func(context.Context, *I) (*O, error) { return nil, errDescribed })
}

// bodied is an input with a body.
type bodied interface {
	bodyType() reflect.Type
	decode(data []byte, known members) error
	text(member string) string
}

// reader returns what reads the parameters and the body of a request into an I.
func reader[I any](most int64, optional bool) func(*http.Request) (*I, error) {
	params := paramsOf(reflect.TypeFor[I]())
	var known members
	b, hasBody := any(new(I)).(bodied)
	if hasBody {
		known = membersOf(b.bodyType())
	}
	return func(r *http.Request) (*I, error) {
		in := new(I)
		v := reflect.ValueOf(in).Elem()
		for _, p := range params {
			p.set(v, r)
		}
		if !hasBody {
			return in, nil
		}
		data, err := wire.ReadBody(r, most)
		if err != nil {
			return nil, err
		}
		b := any(in).(bodied)
		switch empty := len(bytes.TrimSpace(data)) == 0; {
		case empty && optional:
		case empty:
			return nil, newProblem(codeMalformed, "the body is empty: send a JSON object")
		default:
			if err := b.decode(data, known); err != nil {
				return nil, err
			}
		}
		return in, speaksForItself(r.Context(), b)
	}
}

// param is a field that is filled from the path, the query or a header.
type param struct {
	field      int
	name       string
	in         string
	everyValue bool
}

// places are the tags of parameters.
var places = []string{"path", "query", "header"}

func paramsOf(t reflect.Type) (out []param) {
	for i := range t.NumField() {
		for _, place := range places {
			if name, _, _ := strings.Cut(t.Field(i).Tag.Get(place), ","); name != "" {
				out = append(out, param{i, name, place, t.Field(i).Type.Kind() == reflect.Slice})
			}
		}
	}
	return out
}

func (p param) set(v reflect.Value, r *http.Request) {
	field := v.Field(p.field)
	switch {
	case p.in == "path":
		field.SetString(r.PathValue(p.name))
	case p.in == "header":
		field.SetString(r.Header.Get(p.name))
	case r.URL.RawQuery == "":
	case p.everyValue:
		field.Set(reflect.ValueOf(r.URL.Query()[p.name]))
	default:
		field.SetString(queryparam.Get(r.URL.RawQuery, p.name))
	}
}
