// Package openaitest holds answers against OpenAI's official document, which is not in the repository.
package openaitest

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
)

// Variable is the environment variable that names the file of the document.
const Variable = "TURNLEDGER_TEST_OPENAPI"

// Unofficial is a header of requests whose answers the document can't know.
const Unofficial = "Turnledger-Test-Unofficial"

// Document is the official OpenAPI document.
type Document struct {
	t testing.TB
	// schemas of answers, by method and path. Nil: no document was named.
	schemas map[string]*jsonschema.Schema
	// events are the schemas of the events of streams, by type.
	events map[string]*jsonschema.Schema
	// Checked counts the answers that were held against the document.
	Checked atomic.Int64
}

// Read reads the document at a path. Without one, answers are not held against any, which is logged.
func Read(t testing.TB, path string) *Document {
	t.Helper()
	d := &Document{t: t}
	if path == "" {
		t.Logf("%s names no document: answers are not held against it", Variable)
		return d
	}
	both, err := compiled(path)
	d.schemas, d.events = both.answers, both.events
	require.NoError(t, err)
	return d
}

// schemas of answers, by method and path, and of the events of streams, by type.
type schemas struct{ answers, events map[string]*jsonschema.Schema }

// name is what the compiler knows the document by.
const name = "official.json"

// compiler returns a compiler that has the document at a path, and the document.
func compiler(path string) (*jsonschema.Compiler, any, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = file.Close() }()
	doc, err := jsonschema.UnmarshalJSON(file)
	if err != nil {
		return nil, nil, err
	}
	amend(doc)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	return c, doc, c.AddResource(name, doc)
}

// Schema returns a schema of the document at a path, by its name there.
func Schema(t testing.TB, path, schema string) *jsonschema.Schema {
	t.Helper()
	c, _ := must.Two(compiler(path))(t)
	return must.Get(c.Compile(name + "#/components/schemas/" + schema))(t)
}

// Request returns the schema of a request of the document at a path, by its name there. Some of the forms that it may
// have are special cases of others.
func Request(t testing.TB, path, schema string) *jsonschema.Schema {
	t.Helper()
	c, doc := must.Two(compiler(path))(t)
	walk(doc, func(o map[string]any) {
		if forms, is := o["oneOf"].([]any); is { // values may have several forms at once
			o["anyOf"] = forms
			delete(o, "oneOf")
		}
	})
	return must.Get(c.Compile(name + "#/components/schemas/" + schema))(t)
}

// walk gives every object of a document to do.
func walk(v any, do func(map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		do(v)
		for _, inner := range v {
			walk(inner, do)
		}
	case []any:
		for _, inner := range v {
			walk(inner, do)
		}
	}
}

// compile compiles the schemas of answers and events.
func compile(path string) (schemas, error) {
	none := schemas{}
	c, doc, err := compiler(path)
	if err != nil {
		return none, err
	}
	out := map[string]*jsonschema.Schema{}
	for path, item := range member(doc, "paths").(map[string]any) {
		for method, call := range item.(map[string]any) {
			if strings.Contains(path, "?") { // another version of a call
				continue
			}
			if member(call, "responses", "200", "content", "application/json", "schema") == nil {
				continue
			}
			escaped := strings.NewReplacer("~", "~0", "/", "~1").Replace(path)
			pointer := "/paths/" + escaped + "/" + method + "/responses/200/content/application~1json/schema"
			s, err := c.Compile(name + "#" + (&url.URL{Path: pointer}).EscapedPath())
			if err != nil {
				return none, err
			}
			out[strings.ToUpper(method)+" "+path] = s
		}
	}
	if len(out) == 0 {
		return none, errors.New("the document has no answers")
	}
	events, err := compileEvents(c, doc)
	return schemas{out, events}, err
}

// compileEvents compiles the schemas of the events of streams. Those of the beta have the same types.
func compileEvents(c *jsonschema.Compiler, doc any) (map[string]*jsonschema.Schema, error) {
	out := map[string]*jsonschema.Schema{}
	all, _ := member(doc, "components", "schemas").(map[string]any)
	for schema, described := range all {
		types, _ := member(described, "properties", "type", "enum").([]any)
		if !strings.HasSuffix(schema, "Event") || strings.HasPrefix(schema, "Beta") || len(types) != 1 {
			continue
		}
		compiled, err := c.Compile(name + "#/components/schemas/" + schema)
		if err != nil {
			return nil, err
		}
		out[types[0].(string)] = compiled
	}
	return out, nil
}

// compiled compiles the document once.
var compiled = func() func(string) (schemas, error) {
	var once sync.Once
	var found schemas
	var err error
	return func(path string) (schemas, error) {
		once.Do(func() { found, err = compile(path) })
		return found, err
	}
}()

// amend lets values be null that are null in OpenAI's own answers: the ends of empty lists of items, the user of
// responses, and the usage of those without an answer. It takes words of an older draft away, which the newer one has
// under other names: only filters of searches use them.
func amend(doc any) {
	schemas := member(doc, "components", "schemas")
	orNull := func(properties any, names ...string) {
		of, _ := properties.(map[string]any)
		for _, name := range names {
			if had, has := of[name]; has {
				of[name] = map[string]any{"anyOf": []any{had, map[string]any{"type": "null"}}}
			}
		}
	}
	orNull(member(schemas, "ConversationItemList", "properties"), "first_id", "last_id")
	orNull(member(schemas, "ResponseItemList", "properties"), "first_id", "last_id")
	orNull(member(schemas, "ModelResponseProperties", "properties"), "user")
	parts, _ := member(schemas, "Response", "allOf").([]any)
	for _, part := range parts {
		orNull(member(part, "properties"), "usage")
	}
	walk(doc, func(o map[string]any) {
		delete(o, "$recursiveAnchor")
		delete(o, "$recursiveRef")
	})
}

func member(v any, path ...string) any {
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// schema returns the schema of a call's answer, or nil if the document has no such call.
func (d *Document) schema(method, path string) *jsonschema.Schema {
	segments := strings.Split(strings.TrimPrefix(path, "/v1"), "/")
	for call, s := range d.schemas {
		verb, pattern, _ := strings.Cut(call, " ")
		if verb == method && matches(strings.Split(pattern, "/"), segments) {
			return s
		}
	}
	return nil
}

func matches(pattern, path []string) bool {
	if len(pattern) != len(path) {
		return false
	}
	for i, p := range pattern {
		if p != path[i] && !strings.HasPrefix(p, "{") {
			return false
		}
	}
	return true
}

// Holding returns a handler that holds each answer of another one with status 200 and JSON against the document.
func (d *Document) Holding(next http.Handler) http.Handler {
	if d.schemas == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := d.schema(r.Method, r.URL.EscapedPath())
		if s == nil || r.Header.Get(Unofficial) != "" {
			next.ServeHTTP(w, r)
			return
		}
		kept := httptest.NewRecorder()
		next.ServeHTTP(kept, r)
		d.hold(r, s, kept)
		for k, v := range kept.Header() {
			w.Header()[k] = v
		}
		w.WriteHeader(kept.Code)
		_, _ = io.Copy(w, kept.Body) // the client may have gone
	})
}

func (d *Document) hold(r *http.Request, s *jsonschema.Schema, kept *httptest.ResponseRecorder) {
	kind := kept.Header().Get("Content-Type")
	switch {
	case kept.Code != http.StatusOK:
	case strings.HasPrefix(kind, "application/json"):
		d.holdJSON(r, s, kept.Body.Bytes())
	case kind == "text/event-stream":
		for line := range strings.Lines(kept.Body.String()) {
			if data, is := strings.CutPrefix(line, "data: "); is {
				v, _ := jsonschema.UnmarshalJSON(strings.NewReader(data))
				kind, _ := member(v, "type").(string)
				if d.events[kind] == nil {
					d.t.Errorf("%s %s: the official document has no event %q", r.Method, r.URL.Path, kind)
					continue
				}
				d.holdJSON(r, d.events[kind], []byte(data))
			}
		}
	}
}

func (d *Document) holdJSON(r *http.Request, s *jsonschema.Schema, raw []byte) {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err == nil {
		err = s.Validate(v)
	}
	if err != nil {
		d.t.Errorf("%s %s is not what the official document says: %v\n%s", r.Method, r.URL.Path, err, raw)
	}
	d.Checked.Add(1)
}
