package rows

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// nulSign followed by 0 stands for U+0000, which PostgreSQL can't store in a text. If the text itself holds the sign,
// it is doubled.
const nulSign = "␀"

var (
	hideNul = strings.NewReplacer(nulSign, nulSign+nulSign, "\x00", nulSign+"0")
	showNul = strings.NewReplacer(nulSign+nulSign, nulSign, nulSign+"0", "\x00")
)

// toText returns a text in a form that PostgreSQL can store; FromText undoes that.
func toText(s string) string {
	if strings.IndexByte(s, 0) >= 0 || strings.Contains(s, nulSign) {
		s = hideNul.Replace(s)
	}
	if !utf8.ValidString(s) { // checking first is faster
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return s
}

// FromText returns a text as it was before it was stored.
func FromText(s string) string {
	if strings.Contains(s, nulSign) {
		return showNul.Replace(s)
	}
	return s
}

// toJSONB returns a metadata object in a form that a jsonb column can store, nil for none; FromJSONB undoes that.
func toJSONB(raw json.RawMessage) []byte {
	if len(raw) == 0 || bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		return nil
	}
	if plainJSON(raw) {
		return raw
	}
	return rewrite(raw, storable)
}

// FromJSONB returns metadata with the texts that it had before it was stored.
func FromJSONB(stored []byte) json.RawMessage {
	if !bytes.Contains(stored, []byte(nulSign)) {
		return stored
	}
	return rewrite(stored, shown)
}

// ToTexts returns a map of texts as PostgreSQL stores them in a jsonb column; FromTexts undoes that.
func ToTexts(m map[string]string) map[string]string { return mapTexts(m, toText) }

// FromTexts returns a map of texts as they were before they were stored.
func FromTexts(stored map[string]string) map[string]string { return mapTexts(stored, FromText) }

func mapTexts(m map[string]string, change func(string) string) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[change(k)] = change(v)
	}
	return out
}

// plainJSON reports whether every PostgreSQL accepts some JSON as jsonb. It may return false for JSON that would be
// accepted.
func plainJSON(raw []byte) bool {
	return utf8.Valid(raw) && !bytes.Contains(raw, []byte(`\u`)) && !bytes.Contains(raw, []byte(nulSign)) &&
		!hugeNumbers(raw)
}

// Bounds of the digits of a number, before or after its point, and in its exponent: numeric accepts 16,383 after the
// point.
const (
	maxDigits   = 1000
	maxExponent = 3
)

// hugeNumbers matches long runs of digits, and long exponents.
func hugeNumbers(raw []byte) bool {
	run, exponent := 0, false
	for i, c := range raw {
		switch {
		case c >= '0' && c <= '9':
			run++
			if run > maxDigits || exponent && run > maxExponent {
				return true
			}
		case (c == '+' || c == '-') && exponent && run == 0:
		default:
			exponent = (c == 'e' || c == 'E') && i > 0 && raw[i-1] >= '0' && raw[i-1] <= '9'
			run = 0
		}
	}
	return false
}

// rewrite decodes JSON, changes its keys, strings and numbers, and encodes it again.
func rewrite(raw []byte, change func(any) any) []byte {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return nil
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if enc.Encode(walk(v, change)) != nil {
		return nil
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

func walk(v any, change func(any) any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = walk(v[i], change)
		}
		return v
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, member := range v {
			out[change(k).(string)] = walk(member, change)
		}
		return out
	default:
		return change(v)
	}
}

// storable changes a decoded value so that jsonb accepts it. Decoding has replaced invalid characters by U+FFFD.
func storable(v any) any {
	switch v := v.(type) {
	case string:
		return toText(v)
	case json.Number:
		if hugeNumbers([]byte(v)) {
			return v.String()
		}
	}
	return v
}

// shown undoes what storable did to a string.
func shown(v any) any {
	if s, ok := v.(string); ok {
		return FromText(s)
	}
	return v
}
