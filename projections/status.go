package projections

import (
	"time"

	"github.com/turnledger/turnledger/events"
)

// Status of a projection in one partition. Lag counts from the last event applied
// to the log's head; LagSeconds is the age of the last event applied while the
// projection is behind, else 0. Rate is in events a second and ETA the time left, of a
// rebuild only.
type Status struct {
	Name       string
	Partition  int
	Position   events.Position
	Head       events.Position
	LagEvents  uint64
	LagSeconds float64
	State      string
	LastError  string
	// Generation that this is; 0 where it is not known.
	Generation uint64
	Rate       float64
	ETA        time.Duration
}
