package replay

import (
	"fmt"
	"slices"
	"strings"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

// valid holds a query against the log's partitions; what is wrong is a
// *conversation.Invalid.
func valid(q services.EventQuery, partitions int) error {
	for _, id := range []struct{ field, value string }{{"session_id", q.SessionID}, {"identity_id", q.IdentityID}} {
		if id.value != "" && events.ValidID(id.value) != nil {
			return invalid(id.field, events.ErrID.Error())
		}
	}
	if q.SessionID != "" && q.IdentityID != "" {
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
				return invalid(
					list.field, fmt.Sprintf("names a partition that this log does not have: it has %d", partitions),
				)
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
