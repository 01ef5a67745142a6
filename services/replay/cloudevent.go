package replay

import (
	"bytes"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/turnledger/turnledger/events"
)

// appendEvent prints an event as a CloudEvent in JSON form, with the extensions
// position and recordedat (docs/contract.md#reading). Its data is
//
//   - the body as it stands in the log;
//   - of a turn's event that a redaction covers, the ids and "redacted": true;
//   - of what states no fact, "problem" with the reason, a word, and never the body.
//
// What an event of a foreign publisher lacks of the members that a CloudEvent must
// have is made up: its position is its id, and source and type are "unknown".
func appendEvent(b []byte, e *events.Recorded, hidden *redactions) []byte {
	b = append(b, `{"specversion":"1.0","id":`...)
	if e.ID == "" {
		b = appendString(b, e.Position.String())
	} else {
		b = appendString(b, e.ID)
	}
	b = append(b, `,"source":`...)
	b = appendString(b, or(e.Source, "unknown"))
	b = append(b, `,"type":`...)
	b = appendString(b, or(e.Type, "unknown"))
	if subject := or(e.SessionID, e.IdentityID); subject != "" {
		b = append(b, `,"subject":`...)
		b = appendString(b, subject)
	}
	if isTime(e.SentAt) {
		b = append(b, `,"time":"`...)
		b = append(append(b, e.SentAt...), '"')
	}
	b = append(b, `,"position":"`...)
	b = append(b, e.Position.String()...)
	b = append(b, `","recordedat":"`...)
	b = e.Time.AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","data":`...)
	return append(appendData(b, e, hidden), '}')
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// isTime tells whether a text is a time in the form of CloudEvents; what a foreign
// publisher put there may be anything.
func isTime(s string) bool {
	_, err := time.Parse(time.RFC3339Nano, s)
	return err == nil
}

// appendString prints a JSON string; what is not UTF-8 is replaced.
func appendString(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}

func appendData(b []byte, e *events.Recorded, hidden *redactions) []byte {
	if e.Fact == nil {
		b = append(b, `{"problem":`...)
		return append(appendString(b, e.Problem), '}')
	}
	if ids, hides := events.Remains(e.Fact); hides && hidden.covers(e.SessionID, ids.TurnID, ids.ReplacesTurnID) {
		return appendRedacted(b, redacted{ids, true})
	}
	return appendBody(b, e.Body)
}

// redacted is the data of an event whose texts are gone: as in a tombstone, the ids
// stay, and texts, messages and metadata do not.
type redacted struct {
	events.Names
	Redacted bool `json:"redacted"`
}

func appendRedacted(b []byte, data redacted) []byte {
	raw, err := json.Marshal(data)
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
