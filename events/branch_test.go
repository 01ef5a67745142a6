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
		many[i] = segmentOf(id)
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

func segmentOf(session string) events.Segment {
	return events.Segment{SessionID: session, ThroughTurnID: events.TurnID(session, "r1"), Through: at(1)}
}

// selfEdits are wrong in a way that a schema can't say.
func selfEdits() []edit {
	list := lineage()
	mark := func(change func(*events.SessionBranched)) events.Fact {
		f := &events.SessionBranched{SessionID: "s1", ChildSessionID: "s2", RequestID: "f1", At: at(9),
			FromSessionID: "s1", Root: "s0", Segments: list}
		change(f)
		return f
	}
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
		{"a lineage that ends elsewhere", &events.SessionForked{SessionID: "s2", RequestID: "f1", FromSessionID: "s3",
			Root: "s0", Segments: list}, nil, malformed},
		{"a root behind others", &events.SessionForked{SessionID: "s2", RequestID: "f1", FromSessionID: "s1",
			Root: "s1", Segments: list}, nil, malformed},
		{"a mark of its own session", mark(func(f *events.SessionBranched) {
			f.ChildSessionID, f.FromSessionID, f.Segments = "s1", "s0", list[:1]
		}), nil, malformed},
		{"a mark of turns behind its own", mark(func(f *events.SessionBranched) {
			f.FromSessionID, f.Segments = "s3", append(lineage(), segmentOf("s3"))
		}), nil, malformed},
		{"a mark of a root that shares others' turns", mark(func(f *events.SessionBranched) {
			f.SessionID, f.Root = "s3", "s3"
		}), nil, malformed},
		{"a mark that shares nothing of another session", mark(func(f *events.SessionBranched) {
			f.FromSessionID, f.Segments = "s0", nil
		}), nil, malformed},
	}
}
