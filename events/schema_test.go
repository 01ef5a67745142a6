package events_test

import (
	"bytes"
	"encoding"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
)

//conformance:o30
func TestSchemas(t *testing.T) {
	t.Parallel()
	t.Run("there is one for each type and no other", func(t *testing.T) {
		t.Parallel()
		files := must.Get(filepath.Glob("schema/*"))(t)
		var want []string
		for _, typ := range events.Types() {
			want = append(want, schemaFile(typ))
		}
		require.ElementsMatch(t, want, files)
	})
	for _, f := range fullFacts() {
		t.Run(f.Type(), func(t *testing.T) {
			t.Parallel()
			t.Run("holds the members of the struct, each with a description", func(t *testing.T) {
				t.Parallel()
				raw := must.Get(os.ReadFile(schemaFile(f.Type())))(t)
				var schema map[string]any
				require.NoError(t, json.Unmarshal(raw, &schema))
				require.Equal(t, "https://json-schema.org/draft/2020-12/schema", schema["$schema"])
				require.NotEmpty(t, schema["title"])
				require.Equal(t, reflect.TypeOf(f).Elem().Name(), schema["title"])
				compare(t, f.Type(), schema, reflect.TypeOf(f).Elem())
			})
			t.Run("takes what Encode gives, and what later versions add", func(t *testing.T) {
				t.Parallel()
				schema := compile(t, f.Type())
				for _, g := range append(fullFacts(), leastFacts()...) {
					if g.Type() != f.Type() {
						continue
					}
					require.NoError(t, schema.Validate(object(t, g)))
					more := object(t, g)
					more["added_later"] = map[string]any{"n": 1}
					require.NoError(t, schema.Validate(more))
				}
			})
			t.Run("refuses an event without a required member", func(t *testing.T) {
				t.Parallel()
				schema := compile(t, f.Type())
				for _, name := range required(reflect.TypeOf(f).Elem()) {
					less := object(t, f)
					delete(less, name)
					require.Error(t, schema.Validate(less), name)
				}
			})
			t.Run("refuses a member of another kind", func(t *testing.T) {
				t.Parallel()
				schema := compile(t, f.Type())
				for name, v := range object(t, f) {
					wrong := object(t, f)
					wrong[name] = []any{v}
					require.Error(t, schema.Validate(wrong), name)
				}
			})
		})
	}
	t.Run("the full sample sets every member", func(t *testing.T) {
		t.Parallel()
		for _, f := range fullFacts() {
			for name := range members(reflect.TypeOf(f).Elem()) {
				if f.Type() == events.TypeTurnExtended && name == "question_neutral" {
					continue // it extends the answer
				}
				if f.Type() == events.TypeSessionSummarized && name == "void" {
					continue // it stands in the place of all others
				}
				require.Contains(t, object(t, f), name, f.Type())
			}
		}
	})
}

// Where no session is needed to see that an event is wrong, schema and Decode agree.
func TestSchemasAgreeWithDecode(t *testing.T) {
	t.Parallel()
	for _, e := range append(factEdits(), segmentEdits()...) {
		if e.problem == "wrong_turn_id" {
			continue // a schema computes no ids
		}
		t.Run("refuses "+e.property, func(t *testing.T) {
			t.Parallel()
			require.Error(t, compile(t, e.fact.Type()).Validate(object(t, e.fact)))
		})
	}
}

func schemaFile(typ string) string { return filepath.Join("schema", typ+".json") }

func compile(t *testing.T, typ string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	schema := must.Get(c.Compile(schemaFile(typ)))(t)
	return schema
}

// object is the body of a fact as a validator sees it.
func object(t *testing.T, f events.Fact) map[string]any {
	t.Helper()
	v := must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(envelope(f).Body)))(t)
	return v.(map[string]any)
}

// compare holds a schema of an object against the struct that it describes, down
// to the structs in it.
func compare(t *testing.T, path string, schema map[string]any, typ reflect.Type) {
	t.Helper()
	require.NotEmpty(t, schema["description"], path)
	require.Equal(t, true, schema["additionalProperties"], path)
	properties := schema["properties"].(map[string]any)
	fields := members(typ)
	for name := range properties {
		require.Contains(t, fields, name, "%s: the schema has a member that the struct has not", path)
	}
	for name, field := range fields {
		at := path + "." + name
		require.Contains(t, properties, name, "the struct has a member that the schema has not")
		property := properties[name].(map[string]any)
		require.NotEmpty(t, property["description"], at)
		inner := field.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case isText(inner):
		case inner.Kind() == reflect.Struct:
			compare(t, at, property, inner)
		case inner.Kind() == reflect.Slice && inner.Elem().Kind() == reflect.Struct && !isText(inner.Elem()):
			compare(t, at, property["items"].(map[string]any), inner.Elem())
		}
	}
	listed, _ := schema["required"].([]any)
	var names []string
	for _, v := range listed {
		names = append(names, v.(string))
	}
	require.ElementsMatch(t, required(typ), names, path)
}

func isText(t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) || t.Kind() == reflect.Slice &&
		t.Elem().Kind() == reflect.Uint8
}

// members are the JSON members of a struct, embedded ones too.
func members(typ reflect.Type) map[string]reflect.StructField {
	out := map[string]reflect.StructField{}
	for field := range typ.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && name == "":
			for k, v := range members(field.Type) {
				out[k] = v
			}
		case name != "-":
			out[name] = field
		}
	}
	return out
}

// required are the members that are always there.
func required(typ reflect.Type) []string {
	var out []string
	for name, field := range members(typ) {
		if _, options, _ := strings.Cut(field.Tag.Get("json"), ","); !strings.Contains(options, "omit") {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
