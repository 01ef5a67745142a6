package replay

import (
	"context"
	"math"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
)

// headsOf gives the end of each partition, at least as new as all that was
// acknowledged before the call.
func headsOf(ctx context.Context, log *jetlog.Log) ([]uint64, error) {
	heads := make([]uint64, log.Partitions())
	for k := range heads {
		head, err := log.Head(ctx, k)
		if err != nil {
			return nil, err
		}
		heads[k] = head.Seq
	}
	return heads, nil
}

// linkOf gives the identity of a session, or "". As in the fold the first link
// stands: a later one to another identity is an anomaly, and its session is not that
// identity's to read.
func linkOf(ctx context.Context, log *jetlog.Log, session string) (string, error) {
	for e, err := range log.Session(ctx, session, 0, math.MaxUint64) {
		if err != nil {
			return "", err
		}
		if f, linked := e.Fact.(*events.SessionLinked); linked {
			return f.IdentityID, nil
		}
		if _, erased := e.Fact.(*events.SessionErased); erased {
			return "", nil
		}
	}
	return "", nil
}
