package replay

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// Query says which events are wanted. Zero values are no bounds.
type Query struct {
	// Session wants the events of one session, Identity those of all sessions that are
	// linked to it, also the ones from before their link. One of the two at most.
	Session, Identity string
	// Types are event types of the catalogue.
	Types []string
	// From is where a reading ended that this one goes on after; To is the last
	// position wanted. At most one of a partition; a partition that is not named has
	// no bound.
	From, To []events.Position
	// Min are positions that the log must hold, else jetlog.ErrNotReached.
	Min []events.Position
	// Since is the first time wanted, Until the first one not wanted, both in recorded
	// time.
	Since, Until time.Time
	// Follow goes on with what comes, for ever or until To or Until is reached.
	Follow bool
}

// valid holds a query against the log's partitions; what is wrong is a
// *conversation.Invalid.
func (q Query) valid(partitions int) error {
	for _, id := range []struct{ field, value string }{{"session_id", q.Session}, {"identity_id", q.Identity}} {
		if id.value != "" && events.ValidID(id.value) != nil {
			return invalid(id.field, events.ErrID.Error())
		}
	}
	if q.Session != "" && q.Identity != "" {
		return invalid("identity_id", "can't be asked for together with session_id: ask for one of them")
	}
	known := events.Types()
	for _, t := range q.Types {
		if !slices.Contains(known, t) {
			return invalid("type", "must be one of "+strings.Join(known, ", "))
		}
	}
	for _, list := range []struct {
		field string
		at    []events.Position
	}{{"from", q.From}, {"to", q.To}} {
		for _, p := range list.at {
			if p.Partition >= partitions {
				return invalid(list.field, fmt.Sprintf("names a partition that this log does not have: it has %d", partitions))
			}
		}
	}
	return nil
}

func invalid(field, why string) error { return &conversation.Invalid{Field: field, Why: why} }

// end gives the bound of a partition in a list of positions, and false where the list
// does not name it.
func boundOf(list []events.Position, partition int) (uint64, bool) {
	for _, p := range list {
		if p.Partition == partition {
			return p.Seq, true
		}
	}
	return 0, false
}
