package events_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
)

// The expected ids were computed by Python: uuid.uuid5(namespace, session + "\x00" + request).
//
//conformance:h10
func TestTurnID(t *testing.T) {
	t.Parallel()
	t.Run("is UUIDv5 over session, 0x00, request", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "8e5bbb3e-1046-5e03-9fc8-02e783e544f1", events.TurnID("s1", "r1").String())
		require.Equal(t, "4e032699-5471-5add-b8af-cccaf1b18067", events.TurnID("sessïon/1", "req 1").String())
	})
	t.Run("keeps session and request apart", func(t *testing.T) {
		t.Parallel()
		require.NotEqual(t, events.TurnID("a", "bc"), events.TurnID("ab", "c"))
	})
}

func TestEventIDs(t *testing.T) {
	t.Parallel()
	t.Run("are derived from what the event states", func(t *testing.T) {
		t.Parallel()
		var got []string
		for _, f := range fullFacts() {
			got = append(got, f.EventID())
		}
		require.Equal(t, []string{
			"8e5bbb3e-1046-5e03-9fc8-02e783e544f1.started",
			"8e5bbb3e-1046-5e03-9fc8-02e783e544f1.finalized",
			pyPair["s1|alice@example.org"] + ".linked",
			pyPair["s1|c1"] + ".redacted",
			pyPair["s1|c1"] + ".corrected",
			pyPair["s1|7"] + ".reset",
			pyPair["s1|x1"] + ".erased",
			pyPair["s1|mallory|5f1c|7"] + ".link_refused",
			pyPair["alice@example.org|x2"] + ".identity_erased",
			pyPair["s1|x2|log"] + ".receipt",
			pyPair["s1|d2"] + ".described",
			pyPair["s2|s1"] + ".forked",
			pyPair["s1|f1"] + ".branched",
			pyPair["s1|m1"] + ".summarized",
			"8e5bbb3e-1046-5e03-9fc8-02e783e544f1.extended.e1#0",
			pyPair["s1|c1"] + ".pruned.p1",
		}, got)
	})
	t.Run("of an identity's receipt", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, pyPair["x2|log"]+".receipt", (&events.ErasureReceipt{IdentityID: "alice", ReceiptID: "x2",
			Place: "log"}).EventID())
	})
	t.Run("say nothing of a wording", func(t *testing.T) {
		t.Parallel()
		one := events.TurnStarted{TurnID: r1, Question: events.Question{QuestionNeutral: "one"}}
		two := events.TurnStarted{TurnID: r1, Question: events.Question{QuestionNeutral: "two"}}
		require.Equal(t, one.EventID(), two.EventID())
	})
}

func TestValidID(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a", "...", "sessïon/1 x", strings.Repeat("x", 256), strings.Repeat("ü", 128)} {
		t.Run("takes "+events.Token(id), func(t *testing.T) {
			t.Parallel()
			require.NoError(t, events.ValidID(id))
		})
	}
	for _, id := range []string{"", ".", "..", "a\nb", "a\x00", "a\x7f", "a\u0085b", "\xff", strings.Repeat("x", 257),
		strings.Repeat("ü", 129)} {
		t.Run("refuses "+events.Token(id), func(t *testing.T) {
			t.Parallel()
			err := events.ValidID(id)
			require.ErrorIs(t, err, events.ErrID)
			require.Equal(t, events.ErrID.Error(), err.Error(), "the error must not hold the id")
		})
	}
}

// pyPair was computed by Python, as above.
var pyPair = map[string]string{
	"s1|alice@example.org": "de9b7aae-7210-56c5-96c9-d6d59b017a08",
	"s1|c1":                "a118d430-2843-551d-8932-3ce3b9bf7e6f",
	"s1|7":                 "03cd6b3d-07fb-587d-be20-1895ec2290b8",
	"s1|x1":                "5529d0e7-be37-5da9-bd80-e4d4dc5b6c00",
	"s1|mallory|5f1c|7":    "2c8fdd8b-cbf1-5152-a4ec-15590262210c",
	"alice@example.org|x2": "08c7f494-6ada-57d3-931f-0f6bd34e4fdf",
	"s1|x2|log":            "b184614e-8df1-5385-8970-a30b092fde4f",
	"s1|d2":                "dd5bf02c-e516-5b4a-b777-5cb8c9368b40",
	"s2|s1":                "a356faa6-8dee-5485-8da4-a93a142570f2",
	"s1|f1":                "4912b81d-9050-5ade-9064-6e65e02af314",
	"s1|m1":                "3533fd48-2be2-5716-b52a-236c71c22404",
	"x2|log":               "91661d56-1799-5f7b-ada8-f8b3c6153fd4",
}

// Ids are made for each event, and an empty list of messages is looked at in each fold. uuid.NewSHA1 would take three
// allocations for an id, and encoding/json an error for the list.
func TestIDsAndEmptyListsAllocateNothing(t *testing.T) {
	for name, work := range map[string]func(){
		"id":      func() { _ = events.TurnID("session", "request") },
		"no list": func() { _ = events.HasMessages(nil) },
	} {
		require.Zero(t, testing.AllocsPerRun(100, work), name)
	}
}
