package replay

import (
	"fmt"
	"slices"
	"strings"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services"
)

// valid returns a *conversation.Invalid for a query that makes no sense on a log of so many partitions.
func valid(q services.EventQuery, partitions int) error {
	invalid := func(field, why string) error { return &conversation.Invalid{Field: field, Why: why} }
	outside := func(p events.Position) bool { return p.Partition >= partitions }
	beyond := fmt.Sprintf("names a partition that this log does not have: it has %d", partitions)
	known := events.Types()
	switch {
	case q.SessionID != "" && events.ValidID(q.SessionID) != nil:
		return invalid("session_id", events.ErrID.Error())
	case q.IdentityID != "" && events.ValidID(q.IdentityID) != nil:
		return invalid("identity_id", events.ErrID.Error())
	case q.SessionID != "" && q.IdentityID != "":
		return invalid("identity_id", "can't be asked for together with session_id: ask for one of them")
	case slices.ContainsFunc(q.Types, func(t string) bool { return !slices.Contains(known, t) }):
		return invalid("type", "must be one of "+strings.Join(known, ", "))
	case slices.ContainsFunc(q.From, outside):
		return invalid("from", beyond)
	case slices.ContainsFunc(q.To, outside):
		return invalid("to", beyond)
	}
	return nil
}

// boundOf returns the sequence that a list of positions names in a partition, and reports whether it names one.
func boundOf(list []events.Position, partition int) (uint64, bool) {
	i := slices.IndexFunc(list, func(p events.Position) bool { return p.Partition == partition })
	if i < 0 {
		return 0, false
	}
	return list[i].Seq, true
}
