package v1

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/services/problems"
)

// bodyFields maps the names that a body may have to the fields that they go into.
type bodyFields map[string][]int

func bodyFieldsOf(t reflect.Type) bodyFields {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	m := bodyFields{}
	for _, f := range reflect.VisibleFields(t) {
		if !f.Anonymous {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			m[name] = f.Index
		}
	}
	return m
}

// names returns the names that the body may have.
func (f bodyFields) names() []string { return slices.Sorted(maps.Keys(f)) }

// strictly refuses members that a body does not have.
var strictly = jsonv2.RejectUnknownMembers(true)

// decode reads an object into a struct. Unlike encoding/json it matches names exactly, refuses unknown names, and
// reports every faulty field without its value. Members that are null count as absent.
//
// A body without a fault is read in one pass. Only for a faulty body is each member looked at by itself.
func decode(data []byte, into reflect.Value, known bodyFields) error {
	object := jsontext.Value(bytes.TrimLeft(data, " \t\r\n")).Kind() == jsontext.KindBeginObject
	if object && jsonv2.Unmarshal(data, into.Addr().Interface(), strictly) == nil {
		return nil
	}
	into.SetZero()
	return decodeEach(data, into, known)
}

// decodeEach is decode, member by member.
func decodeEach(data []byte, into reflect.Value, known bodyFields) error {
	if !utf8.Valid(data) {
		return problems.New(problems.CodeMalformed, "the body is not UTF-8")
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil && !json.Valid(data) {
		return problems.New(problems.CodeMalformed, "the body is not JSON")
	}
	if object == nil {
		return fieldErrors{{Field: "body", Why: "must be a JSON object"}}
	}
	var wrong fieldErrors
	for name := range repeated(data) {
		wrong = append(wrong, *invalid(printable(name, "body"), notOnce))
	}
	for name, raw := range object {
		i, ok := known[name]
		if !ok {
			why := "is not a member of this call's body: " + listed(known.names())
			wrong = append(wrong, *invalid(printable(name, "body"), why))
		} else if why := set(into.FieldByIndex(i), raw); why != nil {
			why.Field = strings.TrimSuffix(name+"."+why.Field, ".")
			wrong = append(wrong, *why)
		}
	}
	return wrong.sorted()
}

// repeated returns the names that stand more than once in an object.
func repeated(object []byte) map[string]bool {
	in := jsontext.NewDecoder(bytes.NewReader(object),
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	seen, twice := map[string]bool{}, map[string]bool{}
	_, err := in.ReadToken()
	for err == nil && in.PeekKind() == jsontext.KindString {
		var name jsontext.Token
		if name, err = in.ReadToken(); err == nil {
			if text := name.String(); seen[text] {
				twice[text] = true
			} else {
				seen[text] = true
			}
			err = in.SkipValue()
		}
	}
	return twice
}

// nullable is a field that is told of null, which says something else there than an absent member.
type nullable interface{ takesNull() }

func set(field reflect.Value, raw json.RawMessage) *decide.Invalid {
	if _, takes := field.Interface().(nullable); string(raw) == "null" && !takes {
		return nil
	}
	err := json.Unmarshal(raw, field.Addr().Interface())
	own, ofOurs := errors.AsType[*decide.Invalid](err)
	switch {
	case err == nil && isText(field.Type()) && !jsontext.Value(raw).IsValid():
		// encoding/json would decode different texts to the same one.
		return invalid("", halfSurrogate)
	case err == nil:
		return nil
	case ofOurs:
		return own
	default:
		return invalid("", mustBe(field.Type()))
	}
}

func isText(t reflect.Type) bool {
	return t.Kind() == reflect.String || t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.String
}

func mustBe(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	_, read := reflect.New(t).Interface().(encoding.TextUnmarshaler)
	switch kind := t.Kind(); {
	case t == reflect.TypeFor[moment]():
		return notTime
	case kind == reflect.String, read:
		return "must be a string"
	case reflect.Int <= kind && kind <= reflect.Float64:
		return "must be a number"
	case kind == reflect.Bool:
		return "must be true or false"
	case kind == reflect.Slice:
		return "must be a list"
	default:
		return "must be an object"
	}
}

var memberName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)

// printable returns the name of a member or a parameter if it looks like a name. Otherwise it returns the place of the
// name, which may be a text that was sent by mistake, and must not be printed.
func printable(name, where string) string {
	if memberName.MatchString(name) {
		return name
	}
	return where
}

// count is a number of things. A number beyond the largest int becomes the largest int.
type count int

// UnmarshalJSON reads a whole number from one on, in any spelling.
func (c *count) UnmarshalJSON(raw []byte) error {
	return whole(raw, 1, "must be at least 1", (*int)(c))
}

// Schema documents the number.
func (count) Schema(huma.Registry) *huma.Schema { return atLeast(1) }

// windowSize is a number of messages.
type windowSize int

// UnmarshalJSON reads a whole number from two on, in any spelling.
func (w *windowSize) UnmarshalJSON(raw []byte) error {
	return whole(raw, 2, "must be at least 2, a question and its answer", (*int)(w))
}

// Schema documents the number.
func (windowSize) Schema(huma.Registry) *huma.Schema { return atLeast(2) }

// whole reads a whole number of at least least; why is the error's text for a smaller one.
func whole(raw []byte, least float64, why string, into *int) error {
	f, err := strconv.ParseFloat(string(raw), 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange), math.IsNaN(f), !math.IsInf(f, 0) && f != math.Trunc(f):
		return invalid("", "must be a whole number")
	case f < least:
		return invalid("", why)
	}
	*into = int(min(f, math.MaxInt32))
	return nil
}

func atLeast(n float64) *huma.Schema { return &huma.Schema{Type: huma.TypeInteger, Minimum: &n} }

// rawList is a list that is kept as it came.
type rawList struct{ json.RawMessage }

// UnmarshalJSON keeps a copy of the list; null is none.
func (l *rawList) UnmarshalJSON(raw []byte) error {
	l.RawMessage = kept(raw)
	return nil
}

// kept returns a copy of a value, nil for null.
func kept(raw []byte) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return slices.Clone(raw)
}

// Schema documents the list.
func (rawList) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Type: huma.TypeArray, Nullable: true,
		Items: &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true},
	}
}

// rawObject is an object that is kept as it came.
type rawObject struct{ json.RawMessage }

// UnmarshalJSON keeps a copy of the object; null is none.
func (o *rawObject) UnmarshalJSON(raw []byte) error {
	o.RawMessage = kept(raw)
	return nil
}

// Schema documents the object.
func (rawObject) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, Nullable: true, AdditionalProperties: true}
}
