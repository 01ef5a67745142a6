package message_test

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
)

// document is an OpenAPI document, of which samples are drawn.
type document struct{ schemas map[string]map[string]any }

func readDocument(t *testing.T, path string) document {
	t.Helper()
	raw := must.Get(os.ReadFile(path))(t)
	var d struct {
		Components struct {
			Schemas map[string]map[string]any `json:"schemas"`
		} `json:"components"`
	}
	require.NoError(t, json.Unmarshal(raw, &d))
	return document{d.Components.Schemas}
}

// resolve follows a reference.
func (d document) resolve(schema map[string]any) map[string]any {
	for {
		ref, refers := schema["$ref"].(string)
		if !refers {
			return schema
		}
		schema = d.schemas[ref[strings.LastIndexByte(ref, '/')+1:]]
	}
}

// variants returns the alternatives of a schema.
func (d document) variants(name string) (out []map[string]any) {
	for _, v := range d.schemas[name]["oneOf"].([]any) {
		out = append(out, v.(map[string]any))
	}
	return out
}

// deepest is how deep samples go where a schema leaves that open.
const deepest = 6

// draw draws a value that a schema allows.
func (d document) draw(t *rapid.T, schema map[string]any, depth int) any {
	schema = d.resolve(schema)
	for _, word := range []string{"oneOf", "anyOf"} {
		if list, has := schema[word].([]any); has {
			n := rapid.IntRange(0, len(list)-1).Draw(t, word)
			return d.draw(t, list[n].(map[string]any), depth+1)
		}
	}
	if list, has := schema["allOf"].([]any); has {
		all := map[string]any{}
		for _, s := range list {
			if some, is := d.draw(t, s.(map[string]any), depth).(map[string]any); is {
				for k, v := range some {
					all[k] = v
				}
			}
		}
		return all
	}
	if list, has := schema["enum"].([]any); has {
		return rapid.SampledFrom(list).Draw(t, "enum")
	}
	switch schema["type"] {
	case "object":
		return d.object(t, schema, depth)
	case "array":
		out := []any{}
		of, _ := schema["items"].(map[string]any)
		least, _ := schema["minItems"].(float64)
		for range rapid.IntRange(int(least), max(int(least), min(2, deepest-depth))).Draw(t, "length") {
			out = append(out, d.draw(t, of, depth+1))
		}
		return out
	case "integer", "number":
		low, high := 0.0, 1000.0
		if least, has := schema["minimum"].(float64); has {
			low, high = least, least+high
		}
		if most, has := schema["maximum"].(float64); has {
			high = most
		}
		return rapid.IntRange(int(low), int(high)).Draw(t, "number")
	case "boolean":
		return rapid.Bool().Draw(t, "boolean")
	case "null":
		return nil
	default:
		if schema["format"] == "uri" {
			return "https://example.org/" + rapid.StringMatching(`[a-z]{1,5}`).Draw(t, "uri")
		}
		if pattern, has := schema["pattern"].(string); has {
			return rapid.StringMatching(pattern).Draw(t, "pattern")
		}
		if schema["minLength"] != nil {
			return rapid.StringMatching(`[a-z]{1,12}`).Draw(t, "word")
		}
		return rapid.StringMatching(`[a-zäöü ]{0,12}`).Draw(t, "string")
	}
}

func (d document) object(t *rapid.T, schema map[string]any, depth int) any {
	required := map[string]bool{}
	if list, has := schema["required"].([]any); has {
		for _, name := range list {
			required[name.(string)] = true
		}
	}
	out := map[string]any{}
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		of := properties[name]
		if required[name] || depth < deepest && rapid.Bool().Draw(t, "optional") {
			out[name] = d.draw(t, of.(map[string]any), depth+1)
		}
	}
	return out
}
