package events_test

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events"
)

var (
	recordedAt = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	r1         = events.TurnID("s1", "r1")
	c1         = events.TurnID("s1", "c1")
)

// fullFacts holds one fact of each type with every member set.
func fullFacts() []events.Fact {
	question := events.Question{
		PipelineName: "support", Consultant: "ada", Repository: "docs", TranslateChat: true,
		QuestionNeutral: "What is a quark?", QuestionTranslated: "Was ist ein Quark?",
		QuestionMessages: json.RawMessage(`[{"role":"user","content":"What is a quark?"}]`),
		Metadata:         json.RawMessage(`{"channel":"web"}`),
	}
	answer := events.Answer{
		AnswerNeutral: "A particle.", AnswerTranslated: "A particle.", AnswerTranslatedIsFallback: true,
		AnswerMessages: json.RawMessage(`[{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}]`),
	}
	return []events.Fact{
		&events.TurnStarted{TurnID: r1, SessionID: "s1", RequestID: "r1", Question: question,
			Settings: json.RawMessage(`{"instructions":"Be kind."}`)},
		&events.TurnFinalized{TurnID: r1, SessionID: "s1", Answer: answer,
			Metadata: json.RawMessage(`{"locale":"de"}`), Settings: json.RawMessage(`{"n":1}`)},
		&events.SessionLinked{SessionID: "s1", IdentityID: "alice@example.org"},
		&events.TurnRedacted{
			TurnID: c1, SessionID: "s1", IdentityID: "alice@example.org", Reason: "asked to", RedactedBy: "ops",
			Tombstones: chain(),
			Session: &events.SessionMark{
				Boundary: at(2), CreatedAt: recordedAt, LastActiveAt: recordedAt.Add(2 * time.Second),
				Finalized: 4, Pending: 3, ShownFinalized: 2, ShownPending: 1,
			},
		},
		&events.TurnCorrected{TurnID: c1, SessionID: "s1", RequestID: "c1", ReplacesTurnID: r1, Question: question,
			Answer: answer},
		&events.SessionReset{SessionID: "s1", After: at(7), Reason: "new topic"},
		&events.SessionErased{SessionID: "s1", IdentityID: "alice@example.org", ReceiptID: "x1", Reason: "asked to",
			ErasedBy: "ops"},
		&events.LinkRefused{SessionID: "s1", IdentityID: "mallory", SourceHash: "5f1c", After: at(7)},
		&events.IdentityErased{IdentityID: "alice@example.org", ReceiptID: "x2", Reason: "asked to", ErasedBy: "ops"},
		&events.ErasureReceipt{IdentityID: "alice@example.org", SessionID: "s1", ReceiptID: "x2", Place: "log",
			Erased: 12, Sessions: 1, Branches: 2, SharedTurns: 5},
		&events.SessionDescribed{SessionID: "s1", RequestID: "d2", After: at(9), Title: "Quarks",
			Kind: events.KindConversation,

			CurrentBranch: "b1",
			Metadata:      map[string]string{"folder": "physics"}, CreatedAt: &recordedAt,
			Earlier: []string{events.RequestHash("d1")}},
		&events.SessionForked{SessionID: "s2", RequestID: "f1", FromSessionID: "s1", Root: "s0", Segments: lineage()},
		&events.SessionBranched{SessionID: "s1", ChildSessionID: "s2", RequestID: "f1", At: at(9), FromSessionID: "s1",
			Root: "s0", Segments: lineage()},
		&events.SessionSummarized{SessionID: "s1", RequestID: "m1", TurnIDs: []uuid.UUID{r1, c1},
			SummaryNeutral: "Quarks.", SummaryTranslated: "Kvarkar.", Model: "small", Prunes: 1},
		&events.TurnExtended{TurnID: r1, SessionID: "s1", ExtensionID: "e1#0", Metadata: json.RawMessage(`{"n":1}`),
			Settings: json.RawMessage(`{"n":1}`),
			Extension: events.Extension{Half: events.HalfAnswer, AnswerNeutral: "A quark is a particle.",
				Messages: json.RawMessage(`[{"role":"tool","tool_call_id":"1","content":"particle"}]`)}},
		&events.TurnPruned{TurnID: c1, SessionID: "s1", PruneID: "p1", Question: question, Answer: answer,
			Tombstones: pruned(), Session: &events.SessionMark{CreatedAt: recordedAt, LastActiveAt: recordedAt},
			Parts:   []events.Part{{ID: "e1#0", Half: events.HalfAnswer, Messages: 1}, {ID: "p0"}},
			Brought: []events.Brought{{Seq: 4, Time: recordedAt, Settings: json.RawMessage(`{"n":1}`)}},
			Reason:  "asked to", RedactedBy: "ops"},
		&events.TurnRecorded{TurnID: r1, SessionID: "s1", RequestID: "r1", Question: question, Answer: answer,
			Settings: json.RawMessage(`{"n":1}`)},
	}
}

// pruned is a chain whose first version is the first.
func pruned() []events.Tombstone {
	list := chain()
	list[0].RecordVersion, list[0].ReplacesTurnID, list[1].RecordVersion = 1, nil, 2
	return list
}

// lineage is that of a branch that shares turns of two sessions, every member set.
func lineage() []events.Segment {
	return []events.Segment{
		{SessionID: "s0", ThroughTurnID: events.TurnID("s0", "r1"), Through: at(4), After: ptr(at(2))},
		{SessionID: "s1", ThroughTurnID: r1, Through: at(7), After: ptr(at(5))},
	}
}

// leastFacts holds one fact of each type with nothing set that may be left out.
func leastFacts() []events.Fact {
	return []events.Fact{
		&events.TurnStarted{TurnID: r1, SessionID: "s1", RequestID: "r1",
			Question: events.Question{QuestionNeutral: "q"}},
		&events.TurnFinalized{TurnID: r1, SessionID: "s1", Answer: events.Answer{AnswerNeutral: "a"}},
		&events.SessionLinked{SessionID: "s1", IdentityID: "alice"},
		&events.TurnRedacted{TurnID: r1, SessionID: "s1"},
		&events.TurnCorrected{
			TurnID: c1, SessionID: "s1", RequestID: "c1", ReplacesTurnID: r1,
			Question: events.Question{QuestionNeutral: "q"}, Answer: events.Answer{AnswerNeutral: "a"},
		},
		&events.SessionReset{SessionID: "s1"},
		&events.SessionErased{SessionID: "s1", ReceiptID: "x1"},
		&events.LinkRefused{SessionID: "s1", IdentityID: "mallory"},
		&events.IdentityErased{IdentityID: "alice", ReceiptID: "x2"},
		&events.ErasureReceipt{IdentityID: "alice", ReceiptID: "x2"},
		&events.SessionDescribed{SessionID: "s1", RequestID: "d1"},
		&events.SessionForked{SessionID: "s2", RequestID: "f1", FromSessionID: "s1", Root: "s1"},
		&events.SessionBranched{SessionID: "s1", ChildSessionID: "s2", RequestID: "f1", FromSessionID: "s1",
			Root: "s1"},
		&events.SessionSummarized{SessionID: "s1", RequestID: "m1", TurnIDs: []uuid.UUID{r1}, SummaryNeutral: "q"},
		&events.TurnExtended{TurnID: r1, SessionID: "s1", ExtensionID: "e1",
			Extension: events.Extension{Half: events.HalfQuestion, Messages: json.RawMessage(`[{"role":"user"}]`)}},
		&events.TurnPruned{TurnID: r1, SessionID: "s1", PruneID: "p1", Session: &events.SessionMark{},
			Tombstones: []events.Tombstone{{TurnID: r1, RequestID: "r1", Place: at(1), Position: at(1),
				Status: "pending", RecordVersion: 1}}},
		&events.TurnRecorded{TurnID: r1, SessionID: "s1", RequestID: "r1",
			Question: events.Question{QuestionNeutral: "q"}, Answer: events.Answer{AnswerNeutral: "a"}},
	}
}

// chain is a corrected turn as a redaction states it, every member set.
func chain() []events.Tombstone {
	later := recordedAt.Add(time.Second)
	nobody := events.TurnID("s1", "r0")
	return []events.Tombstone{
		{
			TurnID: r1, RequestID: "r1", Place: at(3), Position: at(4), Final: ptr(at(5)), Status: "replaced",
			CreatedAt:   recordedAt,
			FinalizedAt: &later, RecordVersion: 2, ReplacesTurnID: &nobody, ReplacedByTurnID: ptr(c1),
		},
		{
			TurnID: c1, RequestID: "c1", Place: at(3), Position: at(6), Final: ptr(at(6)), Status: "finalized",
			CreatedAt:   recordedAt,
			FinalizedAt: &later, RecordVersion: 3, ReplacesTurnID: ptr(r1), Extended: []events.Position{at(7), at(9)},
		},
	}
}

func at(seq uint64) events.Position { return events.Position{Seq: seq} }

func ptr[T any](v T) *T { return &v }

// envelope encodes a fact; a test's own facts always encode.
func envelope(f events.Fact) events.Envelope {
	env, err := events.Encode(f, recordedAt)
	if err != nil {
		panic(err)
	}
	return env
}
