package events_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
)

func TestEncodeDecode(t *testing.T) {
	t.Parallel()
	for _, f := range append(fullFacts(), leastFacts()...) {
		t.Run("gives back "+f.Type(), func(t *testing.T) {
			t.Parallel()
			env := envelope(f)
			r := events.Decode(env, events.Position{Partition: 3, Seq: 9}, recordedAt.In(time.FixedZone("x", 3600)))
			require.Empty(t, r.Problem)
			require.Equal(t, f, r.Fact)
			require.Equal(t, events.Position{Partition: 3, Seq: 9}, r.Position)
			require.Equal(t, recordedAt, r.Time, "the recorded time, in UTC")
			require.Equal(t, []string{f.Subject(), f.EventID(), f.Type(), "/turnledger",
				"2026-03-01T12:00:00.123456789Z"},
				[]string{r.Subject, r.ID, r.Type, r.Source, r.SentAt})
			require.Equal(t, env.Body, r.Body)
			require.Equal(t, events.Digest(env.Body), r.Digest)
			require.Equal(t, strings.HasPrefix(r.Subject, "turns."), r.SessionID != "")
			require.Equal(t, strings.HasPrefix(r.Subject, "identities."), r.IdentityID != "")
		})
	}
}

func TestEncode(t *testing.T) {
	t.Parallel()
	t.Run("is CloudEvents 1.0 in binary mode, with the event id as message id", func(t *testing.T) {
		t.Parallel()
		env := envelope(leastFacts()[0])
		require.Equal(t, "turns.201.s1", env.Subject)
		require.Equal(t, events.Header{
			"ce-specversion": {"1.0"}, "ce-id": {r1.String() + ".started"}, "ce-source": {"/turnledger"},
			"ce-type": {"turnledger.turn.started.v1"}, "ce-time": {"2026-03-01T12:00:00.123456789Z"},
			"content-type": {"application/json"}, "Nats-Msg-Id": {r1.String() + ".started"},
		}, env.Header)
		require.Equal(t, `{"turn_id":"`+r1.String()+`","session_id":"s1","request_id":"r1","question_neutral":"q"}`, string(env.Body))
	})
	t.Run("keeps each value apart from the others", func(t *testing.T) {
		t.Parallel()
		header := envelope(leastFacts()[0]).Header
		for name, values := range header {
			header[name] = append(values, "more")
		}
		for name, values := range envelope(leastFacts()[0]).Header {
			require.Equal(t, append(values, "more"), header[name], name)
		}
	})
	t.Run("does not escape HTML, in texts and in messages", func(t *testing.T) {
		t.Parallel()
		text := `<b>&amp; "ü" €</b>`
		env := envelope(&events.TurnStarted{TurnID: r1, SessionID: "s1", RequestID: "r1", Question: events.Question{
			QuestionNeutral: text, QuestionMessages: json.RawMessage(`[{"role":"user","content":"<i>&</i>","n":1.0}]`),
		}})
		require.Contains(t, string(env.Body), `<b>&amp; \"ü\" €</b>`)
		require.Contains(t, string(env.Body), `[{"role":"user","content":"<i>&</i>","n":1.0}]`)
	})
	t.Run("says what it could not encode, without its content", func(t *testing.T) {
		t.Parallel()
		_, err := events.Encode(&events.TurnStarted{Question: events.Question{Metadata: json.RawMessage(`{secret`)}},
			recordedAt)
		require.ErrorContains(t, err, "encode turnledger.turn.started.v1")
		require.NotContains(t, err.Error(), "secret")
	})
	t.Run("gives the same body each time, so that the same words are the same digest", func(t *testing.T) {
		t.Parallel()
		for i, f := range fullFacts() {
			require.Equal(t, envelope(f).Body, envelope(fullFacts()[i]).Body)
		}
	})
}

func TestDecodeHeaders(t *testing.T) {
	t.Parallel()
	canonical := func(change func(string) string) events.Recorded {
		env := envelope(leastFacts()[0])
		h := events.Header{}
		for k, v := range env.Header {
			h[change(k)] = v
		}
		env.Header = h
		return events.Decode(env, at(1), recordedAt)
	}
	t.Run("are read in upper case", func(t *testing.T) {
		t.Parallel()
		r := canonical(strings.ToUpper)
		require.Equal(t, leastFacts()[0], r.Fact)
		require.Equal(t, "2026-03-01T12:00:00.123456789Z", r.SentAt)
	})
	t.Run("are read in canonical case", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, leastFacts()[0], canonical(func(k string) string {
			return strings.ToUpper(k[:1]) +
				k[1:]
		}).Fact)
	})
	t.Run("the exact name goes first, then one and the same", func(t *testing.T) {
		t.Parallel()
		env := envelope(leastFacts()[0])
		env.Header["CE-ID"], env.Header["Ce-Id"] = []string{"other"}, []string{"another"}
		require.NotNil(t, events.Decode(env, at(1), recordedAt).Fact)
		delete(env.Header, "ce-id")
		want := events.Decode(env, at(1), recordedAt).ID
		for range 100 {
			env.Header = maps.Clone(env.Header)
			require.Equal(t, want, events.Decode(env, at(1), recordedAt).ID,
				"what a fold sees must not hang on the order of a map")
		}
	})
	t.Run("an empty list of values is none", func(t *testing.T) {
		t.Parallel()
		env := envelope(leastFacts()[0])
		env.Header["ce-specversion"] = nil
		require.Equal(t, "not_a_cloudevent", events.Decode(env, at(1), recordedAt).Problem)
	})
}

// edit is one thing wrong with a recorded envelope.
type edit struct {
	property string
	fact     events.Fact
	change   func(*events.Envelope)
	problem  string
}

func header(k, v string) func(*events.Envelope) {
	return func(e *events.Envelope) { e.Header[k] = []string{v} }
}

func body(s string) func(*events.Envelope) { return func(e *events.Envelope) { e.Body = []byte(s) } }

func with[F any](f F, change func(*F)) *F {
	change(&f)
	return &f
}

func envelopeEdits() []edit {
	start := leastFacts()[0]
	return []edit{
		{"a wrong bucket", start, func(e *events.Envelope) { e.Subject = "turns.1.s1" }, "wrong_subject"},
		{"a foreign subject", start, func(e *events.Envelope) { e.Subject = "orders.201.s1" }, "wrong_subject"},
		{"another session's subject", start, func(e *events.Envelope) { e.Subject = events.SessionSubject("s2") },
			"wrong_subject"},
		{"an identity's subject", start, func(e *events.Envelope) { e.Subject = events.IdentitySubject("s1") },
			"wrong_subject"},
		{"no specversion", start, func(e *events.Envelope) { delete(e.Header, "ce-specversion") }, "not_a_cloudevent"},
		{"another specversion", start, header("ce-specversion", "0.3"), "not_a_cloudevent"},
		{"no headers", start, func(e *events.Envelope) { e.Header = nil }, "not_a_cloudevent"},
		{"a foreign type", start, header("ce-type", "com.example.started"), "unknown_type"},
		{"no type", start, func(e *events.Envelope) { delete(e.Header, "ce-type") }, "unknown_type"},
		{"another event's type", start, header("ce-type", events.TypeTurnFinalized), "empty_answer"},
		{"no event id", start, func(e *events.Envelope) { delete(e.Header, "ce-id") }, "wrong_event_id"},
		{"another event id", start, header("ce-id", r1.String()+".finalized"), "wrong_event_id"},
		{"no body", start, body(""), "malformed_body"},
		{"a body that is not JSON", start, body("secret"), "malformed_body"},
		{"a body of two values", start, body(`{} {}`), "malformed_body"},
		{"a body that is a list", start, body(`[]`), "malformed_body"},
		{"an empty body", start, body(`{}`), "malformed_id"},
		{"a null body", start, body(`null`), "malformed_id"},
		{"a turn id in upper case", start, body(`{"turn_id":"` + strings.ToUpper(events.TurnID("s1", "r1").String()) + `","session_id":"s1","request_id":"r1","question_neutral":"q"}`), "malformed_body"},
		{"a turn id that is no uuid", start, body(`{"turn_id":"secret","session_id":"s1","request_id":"r1","question_neutral":"q"}`), "malformed_body"},
	}
}

func factEdits() []edit {
	type (
		started   = events.TurnStarted
		finalized = events.TurnFinalized
		corrected = events.TurnCorrected
		redacted  = events.TurnRedacted
		described = events.SessionDescribed
		extended  = events.TurnExtended
		pruned    = events.TurnPruned
	)
	full := fullFacts()
	s, f, r, c := *full[0].(*started), *full[1].(*finalized), *full[3].(*redacted), *full[4].(*corrected)
	d, x, p := *full[10].(*described), *full[14].(*extended), *full[15].(*pruned)
	raw := func(v string) json.RawMessage { return json.RawMessage(v) }
	return []edit{
		{"a wrong turn id", with(s, func(f *started) { f.TurnID = c1 }), nil, "wrong_turn_id"},
		{"a bad session id", with(s, func(f *started) { f.SessionID = ".." }), nil, "malformed_id"},
		{"a bad request id", with(s, func(f *started) { f.RequestID = "a\nb" }), nil, "malformed_id"},
		{"no question", with(s, func(f *started) { f.QuestionNeutral, f.QuestionMessages = "", nil }), nil,
			"empty_question"},
		{"an empty list for a question", with(s, func(f *started) {
			f.QuestionNeutral, f.QuestionMessages = "",
				raw(`[]`)
		}), nil, "empty_question"},
		{"messages that are no list", with(s, func(f *started) { f.QuestionMessages = raw(`{"role":"user"}`) }), nil,
			"malformed_messages"},
		{"messages that are texts", with(s, func(f *started) { f.QuestionMessages = raw(`["secret"]`) }), nil,
			"malformed_messages"},
		{"messages that are null", with(s, func(f *started) { f.QuestionMessages = raw(`[null]`) }), nil,
			"malformed_messages"},
		{"metadata that is a list", with(s, func(f *started) { f.Metadata = raw(`["secret"]`) }), nil,
			"malformed_metadata"},
		{"a final without a turn id", with(f, func(f *finalized) { f.TurnID = uuid.Nil }), nil, "wrong_turn_id"},
		{"no answer", with(f, func(f *finalized) { f.AnswerNeutral, f.AnswerMessages = "", nil }), nil, "empty_answer"},
		{"bad messages of an answer", with(f, func(f *finalized) { f.AnswerMessages = raw(`[1]`) }), nil,
			"malformed_messages"},
		{"bad metadata of an answer", with(f, func(f *finalized) { f.Metadata = raw(`"secret"`) }), nil,
			"malformed_metadata"},
		{"a correction with a wrong turn id", with(c, func(f *corrected) { f.TurnID = r1 }), nil, "wrong_turn_id"},
		{"a correction of nothing", with(c, func(f *corrected) { f.ReplacesTurnID = uuid.Nil }), nil, "wrong_turn_id"},
		{"a correction to nothing", with(c, func(f *corrected) { f.AnswerNeutral, f.AnswerMessages = "", nil }), nil,
			"empty_answer"},
		{"a correction without question", with(c, func(f *corrected) {
			f.QuestionNeutral, f.QuestionMessages = "",
				nil
		}), nil, "empty_question"},
		{"an extension of nothing", with(x, func(f *extended) { f.TurnID = uuid.Nil }), nil, "wrong_turn_id"},
		{"an extension without id", with(x, func(f *extended) { f.ExtensionID = "" }), nil, "malformed_id"},
		{"an extension whose id a header would cut", with(x, func(f *extended) { f.ExtensionID = "e " }), nil,
			"malformed_id"},
		{"an extension of no half", with(x, func(f *extended) { f.Half = "both" }), nil, "malformed_extension"},
		{"a question in an extension of an answer", with(x, func(f *extended) { f.QuestionNeutral = "q" }), nil,
			"malformed_extension"},
		{"an answer in an extension of a question", with(x, func(f *extended) { f.Half = events.HalfQuestion }), nil,
			"malformed_extension"},
		{"an extension by nothing", with(x, func(f *extended) { f.Messages = raw(`[]`) }), nil, "malformed_messages"},
		{"an extension by null", with(x, func(f *extended) { f.Messages = raw(`null`) }), nil, "malformed_messages"},
		{"an extension by a text", with(x, func(f *extended) { f.Messages = raw(`["secret"]`) }), nil,
			"malformed_messages"},
		{"bad metadata of an extension", with(x, func(f *extended) { f.Metadata = raw(`"secret"`) }), nil,
			"malformed_metadata"},
		{"a redaction of nothing", with(r, func(f *redacted) { f.TurnID = uuid.Nil }), nil, "wrong_turn_id"},
		{"a link to nobody", &events.SessionLinked{SessionID: "s1"}, nil, "malformed_id"},
		{"a refused link to nobody", &events.LinkRefused{SessionID: "s1"}, nil, "malformed_id"},
		{"a reset of nothing", &events.SessionReset{}, nil, "malformed_id"},
		{"a summary of nothing", &events.SessionSummarized{SessionID: "s1", RequestID: "m", SummaryNeutral: "q"}, nil,
			"malformed_summary"},
		{"an empty summary", &events.SessionSummarized{SessionID: "s1", RequestID: "m", TurnIDs: []uuid.UUID{r1}}, nil,
			"malformed_summary"},
		{"a summary of a turn twice", &events.SessionSummarized{SessionID: "s1", RequestID: "m",
			TurnIDs: []uuid.UUID{r1, r1}, SummaryNeutral: "q"}, nil, "malformed_summary"},
		{"a summary of no turn", &events.SessionSummarized{SessionID: "s1", RequestID: "m",
			TurnIDs: []uuid.UUID{{}}, SummaryNeutral: "q"}, nil, "malformed_summary"},
		{"a void summary with a text", &events.SessionSummarized{SessionID: "s1", RequestID: "m", SummaryNeutral: "q",
			Void: true}, nil, "malformed_summary"},
		{"a void summary with turns", &events.SessionSummarized{SessionID: "s1", RequestID: "m", Void: true,
			TurnIDs: []uuid.UUID{r1}}, nil, "malformed_summary"},
		{"a summary of no request", &events.SessionSummarized{SessionID: "s1", TurnIDs: []uuid.UUID{r1},
			SummaryNeutral: "q"}, nil, "malformed_id"},
		{"a description of nothing", &events.SessionDescribed{RequestID: "d"}, nil, "malformed_id"},
		{"a description of no request", &events.SessionDescribed{SessionID: "s1"}, nil, "malformed_id"},
		{"a long title", with(d, func(f *described) { f.Title = strings.Repeat("ü", 201) }), nil,
			"malformed_description"},
		{"a prune of no id", with(p, func(f *pruned) { f.PruneID = "" }), nil, "malformed_id"},
		{"a prune without tombstones", with(p, func(f *pruned) { f.Tombstones = nil }), nil, "malformed_tombstones"},
		{"a prune without a mark", with(p, func(f *pruned) { f.Session = nil }), nil, "malformed_tombstones"},
		{"a part of no id", with(p, func(f *pruned) { f.Parts = []events.Part{{}, {ID: "p0"}} }), nil,
			"malformed_prune"},
		{"a part of another half", with(p, func(f *pruned) {
			f.Parts = []events.Part{{ID: "e1", Half: "middle"}, {ID: "p0"}}
		}), nil, "malformed_prune"},
		{"a part of less than nothing", with(p, func(f *pruned) {
			f.Parts = []events.Part{{ID: "e1", Half: events.HalfAnswer, Messages: -1}, {ID: "p0"}}
		}), nil, "malformed_prune"},
		{"an unknown kind", with(d, func(f *described) { f.Kind = "thread" }), nil, "malformed_description"},
		{"a title with NUL", with(d, func(f *described) { f.Title = "a\x00" }), nil, "malformed_description"},
		{"an empty key", with(d, func(f *described) { f.Metadata = map[string]string{"": "v"} }), nil,
			"malformed_description"},
		{"a long key", with(d, func(f *described) { f.Metadata = map[string]string{strings.Repeat("k", 65): "v"} }),
			nil, "malformed_description"},
		{"a long value", with(d, func(f *described) {
			f.Metadata = map[string]string{"k": strings.Repeat("v", 513)}
		}), nil, "malformed_description"},
		{"a value with NUL", with(d, func(f *described) { f.Metadata = map[string]string{"k": "\x00"} }), nil,
			"malformed_description"},
		{"many keys", with(d, func(f *described) {
			f.Metadata = map[string]string{}
			for i := range 17 {
				f.Metadata[fmt.Sprint(i)] = ""
			}
		}), nil, "malformed_description"},
		{"a description that names its own beginning alone", with(d, func(f *described) { f.Earlier = nil }), nil,
			"malformed_description"},
		{"a description without its beginning", with(d, func(f *described) { f.CreatedAt = nil }), nil,
			"malformed_description"},
		{"a request that is no hash", with(d, func(f *described) { f.Earlier = []string{"d1"} }), nil,
			"malformed_description"},
		{"many earlier requests", with(d, func(f *described) {
			f.Earlier = slices.Repeat([]string{events.RequestHash("d1")}, 257)
		}), nil, "malformed_description"},
		{"an erasure without receipt", &events.SessionErased{SessionID: "s1"}, nil, "malformed_id"},
		{"an identity's erasure without receipt", &events.IdentityErased{IdentityID: "a"}, nil, "malformed_id"},
		{"a receipt of nobody", &events.ErasureReceipt{ReceiptID: "x"}, nil, "malformed_id"},
		{"a receipt without number", &events.ErasureReceipt{IdentityID: "a"}, nil, "malformed_id"},
	}
}

func tombstoneEdits() []edit {
	redaction := func(change func(stones []events.Tombstone)) events.Fact {
		stones := chain()
		change(stones)
		return &events.TurnRedacted{TurnID: stones[1].TurnID, SessionID: "s1", Tombstones: stones}
	}
	const problem = "malformed_tombstones"
	return []edit{
		{"a redaction of another turn than its tombstones", &events.TurnRedacted{TurnID: events.TurnID("s1", "r2"),
			SessionID: "s1", Tombstones: chain()}, nil, problem},
		{"a tombstone of another request", redaction(func(s []events.Tombstone) { s[0].RequestID = "r2" }), nil,
			problem},
		{"a tombstone without request", redaction(func(s []events.Tombstone) { s[0].RequestID = "" }), nil, problem},
		{"a tombstone of unknown status", redaction(func(s []events.Tombstone) { s[1].Status = "secret" }), nil,
			problem},
		{"a tombstone of a tombstone", redaction(func(s []events.Tombstone) { s[1].Status = "redacted" }), nil,
			problem},
		{"a tombstone of version 0", redaction(func(s []events.Tombstone) {
			s[0].RecordVersion, s[1].RecordVersion = 0,
				1
		}), nil, problem},
		{"versions that do not count up", redaction(func(s []events.Tombstone) { s[1].RecordVersion = 9 }), nil,
			problem},
		{"tombstones that do not replace each other",
			redaction(func(s []events.Tombstone) { s[1].ReplacesTurnID = nil }), nil, problem},
		{"tombstones that are not replaced by each other",
			redaction(func(s []events.Tombstone) { s[0].ReplacedByTurnID = nil }), nil, problem},
		{"an old version that is not replaced", redaction(func(s []events.Tombstone) { s[0].Status = "finalized" }),
			nil, problem},
		{"versions in two places", redaction(func(s []events.Tombstone) { s[1].Place = at(4) }), nil, problem},
		{"a place after the position", redaction(func(s []events.Tombstone) { s[0].Place, s[1].Place = at(5), at(5) }),
			nil, problem},
		{"an extension before the start", redaction(func(s []events.Tombstone) { s[1].Extended[0] = at(6) }), nil,
			problem},
		{"extensions out of order", redaction(func(s []events.Tombstone) { s[1].Extended[1] = at(7) }), nil, problem},
		{"a count below nothing", &events.TurnRedacted{TurnID: c1, SessionID: "s1",
			Session: &events.SessionMark{Pending: -1}}, nil, problem},
		{"a tombstone in no place", redaction(func(s []events.Tombstone) { s[0].Place, s[1].Place = at(0), at(0) }),
			nil, problem},
		{"a version twice", redaction(func(s []events.Tombstone) {
			s[1] = s[0]
			s[0].ReplacedByTurnID, s[1].ReplacesTurnID, s[1].ReplacedByTurnID = ptr(r1), ptr(r1), nil
			s[1].RecordVersion, s[1].Status = 3, "finalized"
		}), nil, problem},
		{"a tombstone in a ring",
			redaction(func(s []events.Tombstone) { s[0].ReplacesTurnID = ptr(c1); s[1].ReplacedByTurnID = ptr(r1) }),
			nil, problem},
	}
}

func TestDecodeProblems(t *testing.T) {
	t.Parallel()
	for _, e := range slices.Concat(envelopeEdits(), factEdits(), tombstoneEdits(), segmentEdits(), selfEdits()) {
		t.Run(e.property, func(t *testing.T) {
			t.Parallel()
			env := envelope(e.fact)
			if e.change != nil {
				e.change(&env)
			}
			r := events.Decode(env, at(5), recordedAt)
			require.Equal(t, e.problem, r.Problem)
			require.Nil(t, r.Fact)
			require.Equal(t, at(5), r.Position)
			require.Equal(t, events.Digest(env.Body), r.Digest)
		})
	}
}

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

func TestTooDeep(t *testing.T) {
	t.Parallel()
	nested := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	require.False(t, events.TooDeep(nested(events.MaxDepth)))
	require.True(t, events.TooDeep(nested(events.MaxDepth+1)))
	require.False(t, events.TooDeep([]byte(`["`+strings.Repeat("[", 1000)+`"]`)), "brackets of a text")
	require.False(t, events.TooDeep([]byte(`["\"`+strings.Repeat("{", 1000)+`"]`)), "an escaped quote ends no text")
	require.False(t, events.TooDeep([]byte("["+strings.Repeat("{},", 1000)+"{}]")))
}

// What nests too deep states no fact: replay and PostgreSQL could not read it again.
func TestAnEventThatNestsTooDeepIsNoFact(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 600) + strings.Repeat("]", 600)
	for problem, q := range map[string]events.Question{
		"malformed_messages": {QuestionNeutral: "q", QuestionMessages: []byte(`[{"role":"user","content":` + deep +
			`}]`)},
		"malformed_metadata": {QuestionNeutral: "q", Metadata: []byte(`{"channel":` + deep + `}`)},
	} {
		env, err := events.Encode(&events.TurnStarted{TurnID: events.TurnID("s", "r"), SessionID: "s", RequestID: "r",
			Question: q}, time.Now())
		require.NoError(t, err)
		require.Equal(t, problem, events.Decode(env, events.Position{Seq: 1}, time.Now()).Problem)
	}
}
