package projections

import (
	"context"
	"time"

	"github.com/turnledger/turnledger/events"
)

const (
	// Unknown is the State of a projection whose lag is not known, since the log does not answer.
	Unknown = "unknown"
	// Live is the State of a projection that follows the log.
	Live = "live"
	// Retrying is the State of a projection whose store does not answer.
	Retrying = "retrying"
	// Outdated is the State of a view that follows the log and has to be rebuilt all the same.
	Outdated = "outdated"
)

// Status of a projection in one partition. Lag counts from the last applied event to the log's head. LagSeconds is the
// age of the first event that is not applied, 0 if there is none. If HeadUnknown is set, the log's head could not be
// read, and Head and both lags mean nothing. If LagUnknown is set, Position is in another log, and both lags mean
// nothing. Rate is in events per second, over the last ten seconds. ETA is the time left of a rebuild.
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
	// Generation of the rows; 0 if it is not known.
	Generation uint64
	// Rebuildable: this process feeds a view, and not an effect on the outside world.
	Rebuildable bool
	ETA         time.Duration
	// RebuildBegun and RebuildDone are when this process's last rebuild of the view ran; zero unless it was done.
	RebuildBegun, RebuildDone time.Time
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
