package conversation_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// A mark made a session only if the session's fork is the one that it states, in each of its members; a session without
// a fork was made by none.
func TestAMarkMadeOnlyTheForkThatItStates(t *testing.T) {
	t.Parallel()
	mark := events.SessionBranched{
		SessionID: "parent", ChildSessionID: "child", RequestID: "f", FromSessionID: "parent", Root: "root",
		At: events.Position{Seq: 9},
		Segments: []events.Segment{{SessionID: "parent", ThroughTurnID: events.TurnID("parent", "r"),
			Through: events.Position{Seq: 7}}},
	}
	made := func(change func(*events.SessionBranched), facts ...events.Fact) bool {
		child := conversation.New("child", conversation.Rules{})
		for i, f := range facts {
			child.Fold(events.Recorded{Fact: f, Position: events.Position{Seq: uint64(i + 1)}, Time: time.Now()})
		}
		changed := mark
		changed.Segments = append([]events.Segment{}, mark.Segments...)
		change(&changed)
		exact := must.Get(events.Encode(&changed, time.Now()))(t)
		parent := conversation.New("parent", conversation.Rules{})
		parent.Fold(events.Recorded{Fact: &changed, Digest: events.Digest(exact.Body),
			Position: events.Position{Seq: mark.At.Seq + 1}, Time: time.Now()})
		require.Len(t, parent.Branches(), 1)
		is := conversation.Made(&changed, child.Fork())
		require.Equal(t, is, parent.Branches()[0].Made(child))
		return is
	}
	same := func(*events.SessionBranched) {}
	require.True(t, made(same, mark.Fork()))
	require.False(t, made(same), "not there yet")
	require.False(t, made(same, &events.SessionLinked{SessionID: "child", IdentityID: "i"}))
	require.False(t, made(same, mark.Fork(), &events.SessionErased{SessionID: "child", ReceiptID: "x"}))
	for name, change := range map[string]func(*events.SessionBranched){
		"request":   func(m *events.SessionBranched) { m.RequestID = "g" },
		"from":      func(m *events.SessionBranched) { m.FromSessionID = "root" },
		"root":      func(m *events.SessionBranched) { m.Root = "parent" },
		"turn":      func(m *events.SessionBranched) { m.Segments[0].ThroughTurnID = events.TurnID("parent", "s") },
		"through":   func(m *events.SessionBranched) { m.Segments[0].Through.Seq++ },
		"boundary":  func(m *events.SessionBranched) { m.Segments[0].After = &events.Position{Seq: 1} },
		"no shared": func(m *events.SessionBranched) { m.Segments = nil },
	} {
		require.False(t, made(change, mark.Fork()), name)
	}
}
