package feed

import (
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/room"
	"github.com/turnledger/turnledger/projections"
)

// silent is a source that brings nothing.
type silent struct{ Source[projections.Judged] }

func (silent) Tally() *room.Tally { return nil }

func (o Options) feed() *Feed[projections.Judged] { return Judged(silent{}, nil, events.Position{}, o) }

// Waits reports whether an event that the log says it recorded at a time waits still, a while after it has come.
func (o Options) Waits(recorded time.Time, after time.Duration) bool {
	f := o.feed()
	f.hold(answer[projections.Judged]{events: []projections.Judged{
		{Recorded: events.Recorded{Time: recorded, Position: events.Position{Seq: 1}}}}})
	return f.wait(time.Now().Add(after), NoEnd) > 0
}

// Gathered returns the batches that a feed makes of events that come one at a time. It takes one whenever there are so
// many, and appends to it, as whoever gets a batch may.
func (o Options) Gathered(all []projections.Judged, each int) (batches [][]projections.Judged) {
	f := o.feed()
	for i := range all {
		f.hold(answer[projections.Judged]{events: all[i : i+1]})
		if len(f.held) == each {
			batch := f.take(NoEnd)
			batches = append(batches, append(batch, projections.Judged{})[:len(batch)])
		}
	}
	return batches
}
