package conversation

import (
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
)

// Tombstones states a chain of versions without their texts, as TurnRedacted
// carries it.
func (s *State) Tombstones(chain []*Turn, partition int) []events.Tombstone {
	out := make([]events.Tombstone, len(chain))
	for i, t := range chain {
		out[i] = events.Tombstone{
			TurnID: t.ID, RequestID: t.RequestID,
			Place:    events.Position{Partition: partition, Seq: t.Place},
			Position: events.Position{Partition: partition, Seq: t.Started},
			Status:   t.Status.String(), CreatedAt: t.CreatedAt, RecordVersion: t.Version,
			FinalizedAt: optionalTime(t.FinalizedAt), ReplacesTurnID: optionalID(t.Replaces), ReplacedByTurnID: optionalID(t.ReplacedBy),
		}
	}
	return out
}

// fromTombstone gives the turn as it stood before its redaction; redact then makes
// it a tombstone like any other.
func fromTombstone(stone events.Tombstone) *Turn {
	t := &Turn{
		ID: stone.TurnID, RequestID: stone.RequestID, Place: stone.Place.Seq, Started: stone.Position.Seq,
		Version: stone.RecordVersion, CreatedAt: stone.CreatedAt,
	}
	for i, name := range statusNames {
		if name == stone.Status {
			t.Status = Status(i)
		}
	}
	if stone.FinalizedAt != nil {
		t.FinalizedAt = *stone.FinalizedAt
	}
	if stone.ReplacesTurnID != nil {
		t.Replaces = *stone.ReplacesTurnID
	}
	if stone.ReplacedByTurnID != nil {
		t.ReplacedBy = *stone.ReplacedByTurnID
	}
	return t
}

// recall takes the session's times from a turn whose own events are gone.
func (s *State) recall(stone events.Tombstone) {
	if s.CreatedAt.IsZero() || stone.CreatedAt.Before(s.CreatedAt) {
		s.CreatedAt = stone.CreatedAt
	}
	last := stone.CreatedAt
	if stone.FinalizedAt != nil {
		last = *stone.FinalizedAt
	}
	if last.After(s.LastActive) {
		s.LastActive = last
	}
}

func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func optionalID(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}
