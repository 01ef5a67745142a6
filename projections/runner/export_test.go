package runner

import (
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/room"
	"github.com/turnledger/turnledger/projections"
)

// Waits reports whether an event that the log says it recorded at a time waits still, a while after it has come.
func (f Feeding) Waits(recorded time.Time, after time.Duration) bool {
	g := gathering{feeding: &f, tally: new(room.Room).Tally()}
	g.hold([]projections.Judged{{Recorded: events.Recorded{Time: recorded}}})
	return g.wait(time.Now().Add(after)) > 0
}

// Gathered returns the batches that a gathering makes of events that come one at a time. It takes one whenever there
// are so many, and appends to it, as whoever gets a batch may.
func (f Feeding) Gathered(all []projections.Judged, each int) (batches [][]projections.Judged) {
	g := gathering{feeding: &f, tally: new(room.Room).Tally()}
	for i := range all {
		g.hold(all[i : i+1])
		if len(g.held) == each {
			batch := g.take()
			batches = append(batches, append(batch, projections.Judged{})[:len(batch)])
		}
	}
	return batches
}
