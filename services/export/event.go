package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/turnledger/turnledger/events"
)

// EventRow is an event as a row. Subject is the session, or the identity for events about identities. TurnID is set for
// events about turns. Redacted means that a redaction removed the texts from Data. Problem says why an event states no
// fact.
type EventRow struct {
	Position   string    `parquet:"position"`
	Partition  int32     `parquet:"partition"`
	Sequence   int64     `parquet:"sequence,delta"`
	RecordedAt time.Time `parquet:"recordedat,timestamp(microsecond)"`
	// Time is the sender's time, null if the sender set none.
	Time     *time.Time `parquet:"time,optional,timestamp(microsecond)"`
	ID       string     `parquet:"id"`
	Source   string     `parquet:"source,dict"`
	Type     string     `parquet:"type,dict"`
	Subject  *string    `parquet:"subject,optional,dict"`
	TurnID   *string    `parquet:"turn_id,optional"`
	Redacted bool       `parquet:"redacted"`
	Problem  *string    `parquet:"problem,optional,dict"`
	Data     string     `parquet:"data,json"`
}

func (r EventRow) size() int { return len(r.Data) + len(r.ID) + 128 }

// cloudEvent is a line of a replay.
type cloudEvent struct {
	ID         string          `json:"id"`
	Source     string          `json:"source"`
	Type       string          `json:"type"`
	Subject    string          `json:"subject"`
	Time       string          `json:"time"`
	Position   string          `json:"position"`
	RecordedAt time.Time       `json:"recordedat"`
	Data       jsontext.Value  `json:"data"`
	at         events.Position `json:"-"`
}

func parseLine(line []byte) (e cloudEvent, err error) {
	// The line holds the body as its sender wrote it, possibly with a duplicate name or half a surrogate pair.
	err = jsonv2.Unmarshal(line, &e, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err == nil {
		e.at, err = events.ParsePosition(e.Position)
	}
	if err != nil {
		return e, fmt.Errorf("read an event: %w", ErrLine)
	}
	return e, nil
}

// ParseEvent makes a row of a line of a replay. It fails with ErrLine if the line is malformed.
func ParseEvent(line []byte) (EventRow, error) {
	e, err := parseLine(line)
	if err != nil {
		return EventRow{}, err
	}
	r := EventRow{
		Position: e.Position, RecordedAt: e.RecordedAt,
		Partition: int32(e.at.Partition), Sequence: int64(e.at.Seq), //nolint:gosec // below 256, and below 2^63
		ID: e.ID, Source: e.Source, Type: e.Type, Subject: present(e.Subject), Data: string(e.Data),
	}
	if t, err := time.Parse(time.RFC3339Nano, e.Time); err == nil {
		r.Time = &t
	}
	ofTurn := strings.HasPrefix(e.Type, "turnledger.turn.") && !bytes.HasPrefix(e.Data, []byte(problemStart))
	if id, _, found := strings.Cut(e.ID, "."); found && ofTurn {
		r.TurnID = &id
	}
	r.readReplacement(e.Data)
	return r, nil
}

const (
	problemStart = `{"problem":`
	redactedEnd  = `,"redacted":true}`
)

// readReplacement reads what the server prints in place of a body.
func (r *EventRow) readReplacement(data []byte) {
	var fields struct {
		Problem  *string `json:"problem"`
		Redacted bool    `json:"redacted"`
	}
	marked := bytes.HasPrefix(data, []byte(problemStart)) || bytes.HasSuffix(data, []byte(redactedEnd))
	if marked && json.Unmarshal(data, &fields) == nil {
		r.Problem, r.Redacted = fields.Problem, fields.Redacted
	}
}

func present(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
