package audit_test

import (
	"time"

	"github.com/turnledger/turnledger/events"
)

// recorded puts a fact into the log's form and reads it back.
func recorded(f events.Fact, seq uint64, at time.Time) events.Recorded {
	env, err := events.Encode(f, at)
	if err != nil {
		panic(err)
	}
	return events.Decode(env, events.Position{Seq: seq}, at)
}
