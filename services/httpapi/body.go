package httpapi

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/turnledger/turnledger/events/conversation"
)

const (
	// defaultBody bounds a request's body (CONTRACT §2).
	defaultBody = 1 << 20
	// drain is how much of a body that is too large is read and thrown away: a client
	// that is still sending sees the answer only if somebody reads.
	drain = 16 << 20
)

// body is the JSON body of a call; an input embeds it. Huma runs Resolve when it
// has the parameters. What is wrong waits in err until the handler's turn, so that
// huma, which would echo the value, never hears of it.
type body[T any] struct {
	value T
	err   error
}

// Resolve reads the body.
func (b *body[T]) Resolve(ctx huma.Context) []error {
	r, _ := humago.Unwrap(ctx)
	op := ctx.Operation()
	data, err := readBody(r)
	empty := len(bytes.TrimSpace(data)) == 0
	switch {
	case err != nil:
		b.err = err
	case empty && op.Metadata[metaOptional] != nil:
	case empty:
		b.err = newProblem(codeMalformed, "the body is empty: send a JSON object")
	default:
		b.err = decode(data, &b.value, op.Metadata[metaMembers].(members))
	}
	return nil
}

// fault is what was wrong with the body.
func (b *body[T]) fault() error { return b.err }

// text is a member that is a text, as it was sent; "" where it is neither.
func (b *body[T]) text(member string) string {
	v := reflect.ValueOf(b.value)
	i, ok := membersOf(v.Type())[member]
	if !ok || !isText(v.Type().Field(i).Type) {
		return ""
	}
	f := v.Field(i)
	if f.Kind() == reflect.Pointer {
		f = f.Elem() // of nil: no value
	}
	if !f.IsValid() {
		return ""
	}
	return f.String()
}

// bodyType is what the documentation is made of.
func (b *body[T]) bodyType() reflect.Type { return reflect.TypeFor[T]() }

func readBody(r *http.Request) ([]byte, error) {
	most := cmp.Or(callOf(r.Context()).mostBody, defaultBody)
	if r.ContentLength > most {
		if r.Header.Get("Expect") == "" {
			_, _ = io.CopyN(io.Discard, r.Body, drain) // as far as it goes
		}
		return nil, tooLarge(most)
	}
	buf := bytes.NewBuffer(make([]byte, 0, max(r.ContentLength, 0)+bytes.MinRead))
	_, err := io.Copy(buf, io.LimitReader(r.Body, most+1))
	switch {
	case err != nil:
		return nil, newProblem(codeMalformed, "the body ended early or came too slowly")
	case int64(buf.Len()) > most:
		_, _ = io.CopyN(io.Discard, r.Body, drain) // as far as it goes
		return nil, tooLarge(most)
	}
	return buf.Bytes(), nil
}

func tooLarge(most int64) error {
	return newProblem(codeTooLarge, fmt.Sprintf("the body has more than %d KiB", most>>10))
}

// members maps the names that a body may have to the fields that they go into.
type members map[string]int

func membersOf(t reflect.Type) members {
	m := members{}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		m[name] = i
	}
	return m
}

// decode reads an object into a struct. Unlike encoding/json it takes names as they
// are spelled, refuses others, and says of every field what is wrong with it
// without its value. Members that are null count as absent.
func decode(data []byte, into any, known members) error {
	if !utf8.Valid(data) {
		return newProblem(codeMalformed, "the body is not UTF-8")
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil && !json.Valid(data) {
		return newProblem(codeMalformed, "the body is not JSON")
	}
	if object == nil {
		return fieldErrors{{Field: "body", Why: "must be a JSON object"}}
	}
	var wrong fieldErrors
	v := reflect.ValueOf(into).Elem()
	for name, raw := range object {
		i, ok := known[name]
		if !ok {
			wrong = append(wrong, conversation.Invalid{Field: printable(name, "body"), Why: "is not a member of this call's body"})
			continue
		}
		if why := set(v.Field(i), raw); why != nil {
			why.Field = strings.TrimSuffix(name+"."+why.Field, ".")
			wrong = append(wrong, *why)
		}
	}
	if wrong == nil {
		return nil
	}
	slices.SortFunc(wrong, func(a, b conversation.Invalid) int { return strings.Compare(a.Field, b.Field) })
	return wrong
}

func set(field reflect.Value, raw json.RawMessage) *conversation.Invalid {
	if string(raw) == "null" {
		return nil
	}
	err := json.Unmarshal(raw, field.Addr().Interface())
	var own *conversation.Invalid
	switch {
	case err == nil && isText(field.Type()) && !jsontext.Value(raw).IsValid():
		// encoding/json would make the same text of different ones.
		return &conversation.Invalid{Why: `holds half of a surrogate pair (\ud800 to \udfff alone): send Unicode`}
	case err == nil:
		return nil
	case errors.As(err, &own):
		return own
	default:
		return &conversation.Invalid{Why: mustBe(field.Type())}
	}
}

func isText(t reflect.Type) bool {
	return t.Kind() == reflect.String || t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.String
}

func mustBe(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Kind() == reflect.String, reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return "must be a string"
	case t.Kind() == reflect.Bool:
		return "must be true or false"
	case t.Kind() == reflect.Slice:
		return "must be a list"
	default:
		return "must be an object"
	}
}

var memberName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)

// printable gives the name of a member or a parameter where it looks like one, or else
// where it stands: what does not look like one may be a text that went astray.
func printable(name, where string) string {
	if memberName.MatchString(name) {
		return name
	}
	return where
}

// count is a number of things. Numbers above all bounds are as good as the bound.
type count int

// UnmarshalJSON takes a whole number from one on, however it is spelled.
func (c *count) UnmarshalJSON(raw []byte) error {
	n, err := whole(raw, 1, "must be at least 1")
	*c = count(n)
	return err
}

// Schema documents the number.
func (count) Schema(huma.Registry) *huma.Schema { return atLeast(1) }

// windowSize is a number of messages.
type windowSize int

// UnmarshalJSON takes a whole number from two on, however it is spelled.
func (w *windowSize) UnmarshalJSON(raw []byte) error {
	n, err := whole(raw, 2, "must be at least 2, a question and its answer")
	*w = windowSize(n)
	return err
}

// Schema documents the number.
func (windowSize) Schema(huma.Registry) *huma.Schema { return atLeast(2) }

// whole reads a number; why says what is wrong with one below the least.
func whole(raw []byte, least float64, why string) (int, error) {
	f, err := strconv.ParseFloat(string(raw), 64)
	if errors.Is(err, strconv.ErrRange) {
		err = nil
	}
	switch {
	case err != nil || math.IsNaN(f) || !math.IsInf(f, 0) && f != math.Trunc(f):
		return 0, &conversation.Invalid{Why: "must be a whole number"}
	case f < least:
		return 0, &conversation.Invalid{Why: why}
	}
	return int(min(f, math.MaxInt32)), nil
}

func atLeast(n float64) *huma.Schema { return &huma.Schema{Type: huma.TypeInteger, Minimum: &n} }

// rawList is a list that is kept as it came.
type rawList struct{ json.RawMessage }

// Schema documents the list.
func (rawList) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeArray, Nullable: true, Items: &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}}
}

// rawObject is an object that is kept as it came.
type rawObject struct{ json.RawMessage }

// Schema documents the object.
func (rawObject) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, Nullable: true, AdditionalProperties: true}
}
