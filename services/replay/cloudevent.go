package replay

import (
	"bytes"
	"cmp"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/quote"
)

// appendEvent prints an event as a CloudEvent in JSON form, with the extensions position and recordedat
// (docs/contract.md#reading). Its data is
//
//   - the body as it stands in the log;
//   - for a turn's event that a redaction or a prune covers, a summary of such a
//     turn, and a description that was replaced, the ids and "redacted": true;
//   - for an event that states no fact, "problem" with a one-word reason, and never the body.
//
// If a foreign publisher's event lacks a member that a CloudEvent must have, the id is the event's position, and source
// and type are "unknown".
func appendEvent(b []byte, e *events.Recorded, hidden *redactions) []byte {
	position := e.Position.String()
	b = quote.Append(append(b, `{"specversion":"1.0","id":`...), cmp.Or(e.ID, position))
	b = quote.Append(append(b, `,"source":`...), cmp.Or(e.Source, "unknown"))
	b = quote.Append(append(b, `,"type":`...), cmp.Or(e.Type, "unknown"))
	if subject := cmp.Or(e.SessionID, e.IdentityID); subject != "" {
		b = quote.Append(append(b, `,"subject":`...), subject)
	}
	// A foreign publisher may have written anything there.
	if _, err := time.Parse(time.RFC3339Nano, e.SentAt); err == nil {
		b = append(append(append(b, `,"time":"`...), e.SentAt...), '"')
	}
	b = append(append(b, `,"position":"`...), position...)
	b = e.Time.AppendFormat(append(b, `","recordedat":"`...), time.RFC3339Nano)
	return append(appendData(append(b, `","data":`...), e, hidden), '}')
}

// redacted is the data of an event without its texts: as in a tombstone, the ids stay, but not texts, messages and
// metadata.
type redacted struct {
	events.Names
	Redacted bool `json:"redacted"`
}

func appendData(b []byte, e *events.Recorded, hidden *redactions) []byte {
	if e.Fact == nil {
		return append(quote.Append(append(b, `{"problem":`...), e.Problem), '}')
	}
	if f, ok := e.Fact.(*events.SessionDescribed); ok && hidden.hidesDescription(e.SessionID, e.Position.Seq) {
		return appendRedacted(b, events.Names{SessionID: f.SessionID, RequestID: f.RequestID})
	}
	if f, ok := e.Fact.(*events.SessionSummarized); ok && hidden.hides(e, f.TurnIDs...) {
		return appendRedacted(b, events.Names{SessionID: f.SessionID, RequestID: f.RequestID})
	}
	ids, hides := events.Remains(e.Fact)
	if !hides || !hidden.hides(e, ids.TurnID, ids.ReplacesTurnID) {
		return appendBody(b, e.Body)
	}
	return appendRedacted(b, ids)
}

func appendRedacted(b []byte, ids events.Names) []byte {
	raw, err := json.Marshal(redacted{ids, true})
	if err != nil {
		return append(b, `{"redacted":true}`...) // never happens: ids and a bool can be encoded
	}
	return append(b, raw...)
}

// appendBody prints a body on one line and in UTF-8. The body has been read as JSON before.
func appendBody(b, body []byte) []byte {
	if !utf8.Valid(body) {
		body = bytes.ToValidUTF8(body, []byte("\ufffd"))
	}
	if bytes.IndexByte(body, '\n') < 0 && bytes.IndexByte(body, '\r') < 0 {
		return append(b, bytes.TrimSpace(body)...)
	}
	var compact bytes.Buffer
	if json.Compact(&compact, body) != nil {
		return append(b, "null"...) // never happens: it was read as JSON
	}
	return append(b, compact.Bytes()...)
}
