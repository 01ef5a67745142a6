package v1

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// Bounds of listings (docs/contract.md#http); more is clamped.
const (
	defaultLimit = 20
	maxLimit     = 10_000
)

func invalid(field, why string) error { return &conversation.Invalid{Field: field, Why: why} }

// sessionID holds the id of a path against its form and notes it for the log line.
func sessionID(ctx context.Context, id string) error {
	if err := validID("session_id", id); err != nil {
		return err
	}
	noteSession(ctx, id)
	return nil
}

func validID(field, id string) error {
	if events.ValidID(id) != nil {
		return invalid(field, events.ErrID.Error())
	}
	return nil
}

// turnID reads the turn id of a path. One that is none names no turn, as does the
// nil id.
func turnID(s string) uuid.UUID {
	id, err := uuid.Parse(s)
	if err != nil || len(s) != len(id.String()) {
		return uuid.Nil
	}
	return id
}

// limit reads the number of things that a listing is asked for.
func limit(s string) (int, error) {
	if s == "" {
		return defaultLimit, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return maxLimit, nil
	}
	if err != nil || n == 0 {
		return 0, invalid("limit", "must be a whole number, at least 1")
	}
	return int(min(n, maxLimit)), nil
}

// minPosition reads the position that an answer must have reached.
func minPosition(s string) ([]events.Position, error) {
	if s == "" {
		return nil, nil
	}
	at, err := events.ParsePositions(s)
	if err != nil {
		return nil, invalid("min_position", "must be a position that a write answered with, such as 0:42, or several "+
			"with commas between")
	}
	return at, nil
}

// moment reads a time; empty is the zero time.
func moment(field, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	// A plus sign that was not escaped comes as a space.
	t, err := time.Parse(time.RFC3339Nano, strings.Replace(s, " ", "+", 1))
	if err != nil {
		return time.Time{}, invalid(field, "must be a time such as 2026-11-21T08:00:00Z")
	}
	return t, nil
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
		return &conversation.Invalid{Why: `must be a time such as "30m" or "7d", or "off"`}
	}
	v *= unit
	d.value = &v
	return nil
}
