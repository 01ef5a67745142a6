package v1

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
)

// Bounds of listings (docs/contract.md#http); larger numbers are clamped.
const (
	defaultLimit = 20
	maxLimit     = 10_000
)

func invalid(field, why string) *decide.Invalid {
	return &decide.Invalid{Field: field, Why: why}
}

// id is an id that a client chose, in a path or a body.
type id string

// UnmarshalText checks that the text has the form of an id.
func (i *id) UnmarshalText(b []byte) error {
	*i = id(b)
	return validID("", string(b))
}

// text returns the id; "" if none was sent.
func (i *id) text() string {
	if i == nil {
		return ""
	}
	return string(*i)
}

func validID(field, id string) error {
	if events.ValidID(id) != nil {
		return invalid(field, events.ErrID.Error())
	}
	return nil
}

// turnID is the id of a turn in a path. A malformed id becomes the nil id, which names no turn.
type turnID struct{ uuid.UUID }

// UnmarshalText never fails.
func (t *turnID) UnmarshalText(b []byte) error {
	t.UUID = parseTurnID(string(b))
	return nil
}

func parseTurnID(s string) uuid.UUID {
	id, err := uuid.Parse(s)
	if err != nil || len(s) != len(id.String()) {
		return uuid.Nil
	}
	return id
}

// onlyNew is the header If-None-Match, whose one value is an asterisk: what stands already is left as it is.
type onlyNew bool

// UnmarshalText reads the header.
func (o *onlyNew) UnmarshalText(b []byte) error {
	if string(b) != "*" {
		return invalid("", "must be *")
	}
	*o = true
	return nil
}

// Schema documents the header.
func (onlyNew) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Enum: []any{"*"}}
}

// number is a number of things, from 1 on; 0 where none was sent.
type number int

// UnmarshalText reads a number. A number that is out of range becomes the largest.
func (n *number) UnmarshalText(b []byte) error {
	v, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || v == 0 {
		return invalid("", "must be a whole number, at least 1")
	}
	*n = number(min(v, math.MaxInt32))
	return nil
}

// limit returns how many things a listing should return.
func (n number) limit() int {
	if n == 0 {
		return defaultLimit
	}
	return min(int(n), maxLimit)
}

// positions are positions of the log, at most one per partition.
type positions []events.Position

// MarshalText writes positions with commas between.
func (p positions) MarshalText() ([]byte, error) { return []byte(events.NewCursor(p...).String()), nil }

// readAt are the positions of a reading: of a branch, one for each partition that was read.
func readAt(at events.Position, others []events.Position) positions {
	return append(positions{at}, others...)
}

// UnmarshalText reads positions with commas between.
func (p *positions) UnmarshalText(b []byte) (err error) {
	if *p, err = events.ParsePositions(string(b)); err != nil {
		return invalid("", "must be a position such as 0:42, or several of different partitions with commas between")
	}
	return nil
}

const notTime = "must be a time such as 2026-11-21T08:00:00Z"

// moment is a time; the zero time if none was sent.
type moment struct{ time.Time }

// UnmarshalText reads RFC 3339. An unescaped plus sign arrives as a space, and counts as a plus sign.
func (m *moment) UnmarshalText(b []byte) (err error) {
	if m.Time, err = time.Parse(time.RFC3339Nano, strings.Replace(string(b), " ", "+", 1)); err != nil {
		return invalid("", notTime)
	}
	return nil
}

// idleTimeout is a silence: a Go duration, or off.
type idleTimeout struct{ value *time.Duration }

// UnmarshalText reads "30m", "7d" or "off".
func (d *idleTimeout) UnmarshalText(b []byte) error {
	s := string(b)
	if s == "off" {
		s = "0"
	}
	unit := time.Duration(1)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		s, unit = days+"h", 24
	}
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 || v > math.MaxInt64/unit {
		return invalid("", `must be a time such as "30m" or "7d", or "off"`)
	}
	v *= unit
	d.value = &v
	return nil
}
