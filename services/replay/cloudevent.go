package replay

import (
	"bytes"
	"cmp"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/turnledger/turnledger/events"
)

// appendEvent prints an event as a CloudEvent in JSON form, with the extensions position and recordedat
// (docs/contract.md#reading). Its data is
//
//   - the body as it stands in the log;
//   - for a turn's event that a redaction covers, the ids and "redacted": true;
//   - for an event that states no fact, "problem" with the reason, a word, and never the body.
//
// Where an event of a foreign publisher lacks a member that a CloudEvent must have, the member is made up: the id is
// the event's position, and source and type are "unknown".
func appendEvent(b []byte, e *events.Recorded, hidden *redactions) []byte {
	position := e.Position.String()
	b = appendString(append(b, `{"specversion":"1.0","id":`...), cmp.Or(e.ID, position))
	b = appendString(append(b, `,"source":`...), cmp.Or(e.Source, "unknown"))
	b = appendString(append(b, `,"type":`...), cmp.Or(e.Type, "unknown"))
	if subject := cmp.Or(e.SessionID, e.IdentityID); subject != "" {
		b = appendString(append(b, `,"subject":`...), subject)
	}
	// What a foreign publisher put there may be anything.
	if _, err := time.Parse(time.RFC3339Nano, e.SentAt); err == nil {
		b = append(append(append(b, `,"time":"`...), e.SentAt...), '"')
	}
	b = append(append(b, `,"position":"`...), position...)
	b = e.Time.AppendFormat(append(b, `","recordedat":"`...), time.RFC3339Nano)
	return append(appendData(append(b, `","data":`...), e, hidden), '}')
}

// appendString prints a JSON string; what is not UTF-8 is replaced.
func appendString(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}

// redacted is the data of an event whose texts are gone: as in a tombstone, the ids stay, and texts, messages and
// metadata do not.
type redacted struct {
	events.Names
	Redacted bool `json:"redacted"`
}

func appendData(b []byte, e *events.Recorded, hidden *redactions) []byte {
	if e.Fact == nil {
		return append(appendString(append(b, `{"problem":`...), e.Problem), '}')
	}
	ids, hides := events.Remains(e.Fact)
	if !hides || !hidden.covers(e.SessionID, ids.TurnID, ids.ReplacesTurnID) {
		return appendBody(b, e.Body)
	}
	raw, err := json.Marshal(redacted{ids, true})
	if err != nil {
		return append(b, `{"redacted":true}`...) // can't be: ids and a bool
	}
	return append(b, raw...)
}

// appendBody prints a body that was read as JSON, on one line, and in UTF-8.
func appendBody(b, body []byte) []byte {
	if !utf8.Valid(body) {
		body = bytes.ToValidUTF8(body, []byte("\ufffd"))
	}
	if bytes.IndexByte(body, '\n') < 0 && bytes.IndexByte(body, '\r') < 0 {
		return append(b, bytes.TrimSpace(body)...)
	}
	var compact bytes.Buffer
	if json.Compact(&compact, body) != nil {
		return append(b, "null"...) // can't be: it was read as JSON
	}
	return append(b, compact.Bytes()...)
}
