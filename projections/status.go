package projections

import (
	"time"

	"github.com/turnledger/turnledger/events"
)

// Unknown is the State of a projection whose distance from the log can't be told,
// since the log does not answer.
const Unknown = "unknown"

// Status of a projection in one partition. Lag counts from the last event applied
// to the log's head; LagSeconds is the age of the last event applied while the
// projection is behind, else 0. Where the log does not tell its head, HeadUnknown is
// set, and Head and both lags say nothing. Rate is in events a second, over the last
// ten; ETA is the time left of a rebuild.
type Status struct {
	Name        string
	Partition   int
	Position    events.Position
	Head        events.Position
	HeadUnknown bool
	LagEvents   uint64
	LagSeconds  float64
	Rate        float64
	State       string
	LastError   string
	// Generation that this is; 0 where it is not known.
	Generation uint64
	ETA        time.Duration
}
