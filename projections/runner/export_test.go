package runner

import (
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
)

// Waits reports whether an event that the log says it recorded at a time waits still, a while after it has come.
func (f Feeding) Waits(recorded time.Time, after time.Duration) bool {
	g := gathering{feeding: &f}
	g.hold([]projections.Judged{{Recorded: events.Recorded{Time: recorded}}})
	return g.wait(time.Now().Add(after)) > 0
}
