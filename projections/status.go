package projections

import (
	"context"
	"time"

	"github.com/turnledger/turnledger/events"
)

// Unknown is the State of a projection whose distance from the log can't be told,
// since the log does not answer.
const Unknown = "unknown"

// Status of a projection in one partition. Lag counts from the last event applied to the log's head; LagSeconds is the
// age of the first event that is not applied yet, 0 where there is none. If the log's head can't be read, HeadUnknown
// is set, and Head and both lags mean nothing. Rate is in events a second, over the last ten; ETA is the time left of a
// rebuild. With LagUnknown Position is in another log, so that neither lag says anything.
type Status struct {
	Name        string
	Partition   int
	Position    events.Position
	Head        events.Position
	HeadUnknown bool
	LagUnknown  bool
	LagEvents   uint64
	LagSeconds  float64
	Rate        float64
	State       string
	LastError   string
	// Generation that this is; 0 where it is not known.
	Generation uint64
	// Rebuildable: what this process feeds is a view, and no effect on the outside.
	Rebuildable bool
	ETA         time.Duration
}

// follower reads single events of a log; *jetlog.Log implements it.
type follower interface {
	After(ctx context.Context, partition int, seq uint64) (uint64, bool, error)
	At(ctx context.Context, at events.Position) (events.Recorded, bool, error)
}

// Measure fills in how far Position is behind Head. If all events between the two were erased, Position becomes Head.
// LagSeconds is 0 if the log does not return the first event's time.
func (s *Status) Measure(ctx context.Context, log follower, now time.Time) {
	if s.Head.Seq <= s.Position.Seq {
		return
	}
	next, found, err := log.After(ctx, s.Partition, s.Position.Seq)
	if err == nil && (!found || next > s.Head.Seq) {
		s.Position = s.Head
		return
	}
	s.LagEvents = s.Head.Seq - s.Position.Seq
	if e, found, err := log.At(ctx, events.Position{Partition: s.Partition, Seq: next}); err == nil && found {
		s.LagSeconds = max(now.Sub(e.Time).Seconds(), 0)
	}
}
