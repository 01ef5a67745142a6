package audit

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/turnledger/turnledger/events"
)

// nulSign stands, with a 0 behind it, for U+0000, which PostgreSQL holds in no text; a sign of the text itself is doubled.
const nulSign = "␀"

var (
	hideNul = strings.NewReplacer(nulSign, nulSign+nulSign, "\x00", nulSign+"0")
	showNul = strings.NewReplacer(nulSign+nulSign, nulSign, nulSign+"0", "\x00")
)

// toText gives a text as PostgreSQL can hold it; fromText gives it back.
func toText(s string) string {
	if strings.IndexByte(s, 0) >= 0 || strings.Contains(s, nulSign) {
		s = hideNul.Replace(s)
	}
	if !utf8.ValidString(s) { // the faster look
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return s
}

func fromText(s string) string {
	if strings.Contains(s, nulSign) {
		return showNul.Replace(s)
	}
	return s
}

// toJSON gives messages as a json column holds them byte for byte. They nest no deeper than PostgreSQL reads (events.MaxDepth).
func toJSON(raw json.RawMessage) []byte {
	if len(raw) == 0 {
		return nil
	}
	if !utf8.Valid(raw) {
		raw = bytes.ToValidUTF8(raw, []byte("\uFFFD"))
	}
	return raw
}

// toJSONB gives a metadata object as a jsonb column can hold it, and nil for none; fromJSONB gives it back.
func toJSONB(raw json.RawMessage) []byte {
	if len(raw) == 0 || bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		return nil
	}
	if plainJSON(raw) {
		return raw
	}
	return rewrite(raw, func(v any) any { return storable(v) })
}

func fromJSONB(stored []byte) json.RawMessage {
	if !bytes.Contains(stored, []byte(nulSign)) {
		return stored
	}
	return rewrite(stored, func(v any) any { return walk(v, fromText) })
}

// plainJSON knows JSON that every PostgreSQL takes as jsonb; it may miss some.
func plainJSON(raw []byte) bool {
	return utf8.Valid(raw) && !bytes.Contains(raw, []byte(`\u`)) && !bytes.Contains(raw, []byte(nulSign)) && !hugeNumbers(raw)
}

// Digits that a number may have, before or after its point, and in its exponent: numeric takes 16,383 after the point.
const (
	maxDigits   = 1000
	maxExponent = 3
)

// hugeNumbers looks for runs of digits that are long, or not so long as an exponent.
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

func rewrite(raw []byte, change func(any) any) []byte {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return nil
	}
	return encode(change(v))
}

// storable makes a decoded value fit for jsonb. Decoding has put U+FFFD in the place of what is no character.
func storable(v any) any {
	switch v := v.(type) {
	case string:
		return toText(v)
	case json.Number:
		if hugeNumbers([]byte(v)) {
			return v.String()
		}
		return v
	case []any:
		for i := range v {
			v[i] = storable(v[i])
		}
		return v
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, member := range v {
			out[toText(k)] = storable(member)
		}
		return out
	default:
		return v
	}
}

// walk changes every string of a decoded value.
func walk(v any, change func(string) string) any {
	switch v := v.(type) {
	case string:
		return change(v)
	case []any:
		for i := range v {
			v[i] = walk(v[i], change)
		}
		return v
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, member := range v {
			out[change(k)] = walk(member, change)
		}
		return out
	default:
		return v
	}
}

func encode(v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return nil
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// knownID gives an id as it may stand in a row, and "" for one that breaks the rules of ids: only an event that states no fact
// has such.
func knownID(id string) string {
	if events.ValidID(id) != nil {
		return ""
	}
	return id
}
