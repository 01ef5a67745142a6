package events_test

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
)

// segmentEdits are lineages that no branch can have.
func segmentEdits() []edit {
	forked := func(change func([]events.Segment)) events.Fact {
		list := lineage()
		change(list)
		return &events.SessionForked{SessionID: "s2", RequestID: "f1", FromSessionID: "s1", Root: "s0", Segments: list}
	}
	many := make([]events.Segment, events.MaxSegments+1)
	for i := range many {
		id := fmt.Sprint("s", i+10)
		many[i] = events.Segment{SessionID: id, ThroughTurnID: events.TurnID(id, "r1"), Through: at(1)}
	}
	const malformed = "malformed_segments"
	return []edit{
		{"a fork of nothing", &events.SessionForked{SessionID: "s2", RequestID: "f1", Root: "s1"}, nil, "malformed_id"},
		{"a fork without root", &events.SessionForked{SessionID: "s2", RequestID: "f1", FromSessionID: "s1"}, nil,
			"malformed_id"},
		{"a fork without request", &events.SessionForked{SessionID: "s2", FromSessionID: "s1", Root: "s1"}, nil,
			"malformed_id"},
		{"a segment without turn", forked(func(l []events.Segment) { l[0].ThroughTurnID = uuid.Nil }), nil, malformed},
		{"a segment without end", forked(func(l []events.Segment) { l[1].Through.Seq = 0 }), nil, malformed},
		{"a segment of no session", forked(func(l []events.Segment) { l[0].SessionID = ".." }), nil, "malformed_id"},
		{"too many segments", &events.SessionForked{SessionID: "s2", RequestID: "f1", FromSessionID: "s1", Root: "s0",
			Segments: many}, nil, malformed},
		{"a mark of nothing", &events.SessionBranched{ChildSessionID: "s2", RequestID: "f1", FromSessionID: "s1",
			Root: "s1"}, nil, "malformed_id"},
		{"a mark without branch", &events.SessionBranched{SessionID: "s1", RequestID: "f1", FromSessionID: "s1",
			Root: "s1"}, nil, "malformed_id"},
	}
}

// selfEdits are wrong in a way that a schema can't say.
func selfEdits() []edit {
	list := lineage()
	const malformed = "malformed_segments"
	return []edit{
		{"a branch of itself", &events.SessionForked{SessionID: "s2", RequestID: "f1", FromSessionID: "s1", Root: "s2"},
			nil, malformed},
		{"a branch from itself", &events.SessionForked{SessionID: "s2", RequestID: "f1", FromSessionID: "s2",
			Root: "s1"}, nil, malformed},
		{"a session twice", &events.SessionForked{SessionID: "s2", RequestID: "f1", FromSessionID: "s1", Root: "s0",
			Segments: append(list, list[0])}, nil, malformed},
		{"a boundary behind the end", &events.SessionForked{SessionID: "s2", RequestID: "f1", FromSessionID: "s1",
			Root: "s0", Segments: []events.Segment{{SessionID: "s1", ThroughTurnID: r1, Through: at(7),
				After: ptr(at(7))}}}, nil, malformed},
	}
}
