package projections

import "github.com/turnledger/turnledger/events"

// Status of a projection in one partition. Lag counts from the last event applied
// to the log's head; LagSeconds is the age of the last event applied while the
// projection is behind, else 0.
type Status struct {
	Name       string
	Partition  int
	Position   events.Position
	Head       events.Position
	LagEvents  uint64
	LagSeconds float64
	State      string
	LastError  string
}
