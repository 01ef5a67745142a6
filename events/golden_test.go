package events_test

import (
	"bytes"
	"crypto/sha256"
	"encoding"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
)

// recordedEnvelope is an event as it was once recorded. The files are added and
// never edited: what the log holds must be read for ever.
type recordedEnvelope struct {
	Subject  string          `json:"subject"`
	Headers  events.Header   `json:"headers"`
	Body     json.RawMessage `json:"body"`
	Position events.Position `json:"position"`
	Time     time.Time       `json:"time"`
}

func (r recordedEnvelope) decode(t *testing.T) events.Recorded {
	t.Helper()
	var body bytes.Buffer
	require.NoError(t, json.Compact(&body, r.Body))
	return events.Decode(events.Envelope{Subject: r.Subject, Header: r.Headers, Body: body.Bytes()}, r.Position, r.Time)
}

func readRecorded(t *testing.T, name string) recordedEnvelope {
	t.Helper()
	raw := must.Get(os.ReadFile(filepath.Join("testdata/v1", name+".json")))(t)
	var r recordedEnvelope
	require.NoError(t, json.Unmarshal(raw, &r))
	return r
}

// goldens are the recorded events of one session and one identity, in the order of
// their positions: what each states, and what it does to the session.
func goldens() []struct {
	name string
	fact events.Fact
	kind session.Kind
} {
	const sessionID, identity = "visit/2026-03-01 ü", "alice@example.org"
	first := time.Date(2026, 3, 1, 12, 0, 1, 1000, time.UTC)
	asked, corrected := events.TurnID(sessionID, "req-1"), events.TurnID(sessionID, "fix-1")
	question := events.Question{
		PipelineName: "support", Consultant: "ada", Repository: "docs", TranslateChat: true,
		QuestionNeutral: "Is 1 < 2 & 3 > 2?", QuestionTranslated: "Ist 1 < 2 & 3 > 2?",
		QuestionMessages: json.RawMessage(`[{"role":"user","content":[{"type":"text","text":"Is 1 < 2 & 3 > 2?"},{"type":"image_url","image_url":{"url":"https://example.org/a.png"}}],"x_client":{"n":1.50}}]`),
		Metadata:         json.RawMessage(`{"channel":"web","locale":"de-DE"}`),
	}
	answer := events.Answer{
		AnswerNeutral: "Yes.", AnswerTranslated: "Ja.",
		AnswerMessages: json.RawMessage(`[{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"calc","arguments":"{\"e\":\"1<2\"}"}}]},{"role":"tool","tool_call_id":"call_1","content":"true"},{"role":"assistant","content":"Yes."}]`),
	}
	better := question
	better.QuestionMessages = nil
	return []struct {
		name string
		fact events.Fact
		kind session.Kind
	}{
		{events.TypeTurnStarted, &events.TurnStarted{TurnID: asked, SessionID: sessionID, RequestID: "req-1",
			Question: question}, session.Started},
		{events.TypeTurnFinalized, &events.TurnFinalized{TurnID: asked, SessionID: sessionID, Answer: answer,
			Metadata: json.RawMessage(`{"device_type":"phone"}`)}, session.Answered},
		{events.TypeSessionLinked, &events.SessionLinked{SessionID: sessionID, IdentityID: identity},
			session.Linked},
		{events.TypeLinkRefused, &events.LinkRefused{SessionID: sessionID, IdentityID: "mallory",
			SourceHash: "9f86d081884c7d65"}, session.Refused},
		{events.TypeTurnCorrected, &events.TurnCorrected{
			TurnID: corrected, SessionID: sessionID, RequestID: "fix-1", ReplacesTurnID: asked,
			Question: better, Answer: events.Answer{AnswerNeutral: "Yes, both.", AnswerTranslated: "Yes, both.",
				AnswerTranslatedIsFallback: true},
		}, session.Corrected},
		{events.TypeSessionReset, &events.SessionReset{SessionID: sessionID, After: events.Position{Seq: 5},
			Reason: "new topic"}, session.Reset},
		{events.TypeTurnRedacted, &events.TurnRedacted{
			TurnID: asked, SessionID: sessionID, IdentityID: identity, Reason: "asked to", RedactedBy: "ops",
			Tombstones: []events.Tombstone{
				{
					TurnID: asked, RequestID: "req-1", Place: at(1), Position: at(1), Final: ptr(at(2)),
					Status: "replaced", CreatedAt: first,
					FinalizedAt: ptr(first.Add(time.Second)), RecordVersion: 1, ReplacedByTurnID: &corrected,
				},
				{
					TurnID: corrected, RequestID: "fix-1", Place: at(1), Position: at(5), Final: ptr(at(5)),
					Status: "finalized", CreatedAt: first,
					FinalizedAt: ptr(first.Add(4 * time.Second)), RecordVersion: 2, ReplacesTurnID: &asked,
				},
			},
			Session: &events.SessionMark{Boundary: at(6), Silence: ptr(at(0)), CreatedAt: first,
				LastActiveAt: first.Add(5 * time.Second), Finalized: 1},
		}, session.TurnGone},
		{events.TypeSessionErased, &events.SessionErased{SessionID: sessionID, ReceiptID: "rcp-1", Reason: "asked to",
			ErasedBy: "ops"}, session.Erased},
		{events.TypeIdentityErased, &events.IdentityErased{IdentityID: identity, ReceiptID: "rcp-2", Reason: "left",
			ErasedBy: "ops"}, session.Anomaly},
		{events.TypeErasureReceipt, &events.ErasureReceipt{IdentityID: identity, ReceiptID: "rcp-2", Place: "log",
			Erased: 12}, session.Anomaly},
		{events.TypeSessionDescribed, &events.SessionDescribed{SessionID: sessionID, RequestID: "name-2",
			After: events.Position{Seq: 10}, Title: "Quarks & <leptons>",
			Metadata:  map[string]string{"folder": "physics", "pinned": "yes"},
			CreatedAt: &first, Earlier: []string{events.RequestHash("name-1")}}, session.Anomaly},
		{events.TypeSessionForked, &events.SessionForked{SessionID: sessionID, RequestID: "fork-1",
			FromSessionID: "other visit", Root: "first visit", Segments: []events.Segment{
				{SessionID: "first visit", ThroughTurnID: events.TurnID("first visit", "ask-1"),
					Through: events.Position{Partition: 3, Seq: 7}},
				{SessionID: "other visit", ThroughTurnID: events.TurnID("other visit", "ask-1"),
					Through: events.Position{Partition: 1, Seq: 12}, After: &events.Position{Partition: 1, Seq: 4}},
			}}, session.Anomaly},
		{events.TypeSessionBranched, &events.SessionBranched{SessionID: sessionID, ChildSessionID: "next visit",
			RequestID: "fork-2", At: at(12), FromSessionID: sessionID, Root: "first visit", Segments: []events.Segment{
				{SessionID: sessionID, ThroughTurnID: events.TurnID(sessionID, "ask-1"), Through: at(5), After: ptr(at(1))},
			}}, session.Anomaly},
		{events.TypeSessionSummarized, &events.SessionSummarized{SessionID: sessionID, RequestID: "sum-1",
			TurnIDs:        []uuid.UUID{events.TurnID(sessionID, "req-1"), events.TurnID(sessionID, "req-2")},
			SummaryNeutral: "Quarks & <leptons> were named.", SummaryTranslated: "Kvarkar nämndes.",
			Model: "small-1"}, session.Anomaly},
		{events.TypeTurnExtended, &events.TurnExtended{TurnID: asked, SessionID: sessionID, ExtensionID: "step 2#1",
			Extension: events.Extension{Half: events.HalfAnswer, AnswerNeutral: "Yes & yes.",
				Messages: json.RawMessage(`[{"role":"tool","tool_call_id":"call_2","content":"1 < 2"},{"role":"assistant","content":"Yes & yes.","x_client":{"n":1.50}}]`)},
			Metadata: json.RawMessage(`{"channel":"web"}`)}, session.Anomaly},
		{events.TypeTurnPruned, &events.TurnPruned{TurnID: events.TurnID(sessionID, "req-2"), SessionID: sessionID,
			PruneID: "delete/1", Question: events.Question{Metadata: json.RawMessage(`{"channel":"web"}`)},
			Answer: events.Answer{AnswerNeutral: "Yes & yes.",
				AnswerMessages: json.RawMessage(`[{"role":"assistant","content":"Yes & yes.","item":{"id":"msg_1"}}]`)},
			Tombstones: []events.Tombstone{{TurnID: events.TurnID(sessionID, "req-2"), RequestID: "req-2", Place: at(3),
				Position: at(3), Final: ptr(at(4)), Status: "finalized", CreatedAt: first,
				FinalizedAt: ptr(first.Add(time.Second)), RecordVersion: 1, Extended: []events.Position{at(5), at(6)}}},
			Session: &events.SessionMark{CreatedAt: first, LastActiveAt: first.Add(5 * time.Second), Finalized: 1,
				ShownFinalized: 1},
			Parts:  []events.Part{{ID: "step 2#1", Half: events.HalfAnswer, Messages: 1}, {ID: "delete/0"}},
			Reason: "asked to", RedactedBy: "ops"}, session.Anomaly},
		{events.TypeTurnRecorded, &events.TurnRecorded{TurnID: events.TurnID(sessionID, "req-3"), SessionID: sessionID,
			RequestID: "req-3", Question: events.Question{PipelineName: "support", QuestionNeutral: "Is 1 < 2 & 3 > 2?",
				QuestionTranslated: "Ist 1 < 2 & 3 > 2?", Metadata: json.RawMessage(`{"channel":"web"}`)},
			Answer: events.Answer{AnswerNeutral: "Yes & yes.", AnswerMessages: json.RawMessage(
				`[{"role":"assistant","content":"Yes & yes.","x_client":{"n":1.5}}]`)}}, session.Anomaly},
	}
}

//conformance:o30
func TestRecordedEnvelopes(t *testing.T) {
	t.Parallel()
	t.Run("decode to the same fact for ever", func(t *testing.T) {
		t.Parallel()
		var types []string
		for _, g := range goldens() {
			r := readRecorded(t, g.name).decode(t)
			require.Empty(t, r.Problem, g.name)
			require.Equal(t, g.fact, r.Fact)
			require.Equal(t, g.name, r.Type)
			types = append(types, r.Type)
		}
		require.ElementsMatch(t, events.Types(), types, "each type of the catalogue is decoded and folded here")
	})
	t.Run("of other shapes of a type decode, too", func(t *testing.T) {
		t.Parallel()
		r := readRecorded(t, "turnledger.session.summarized.v1.void").decode(t)
		require.Empty(t, r.Problem)
		void := &events.SessionSummarized{SessionID: "visit/2026-03-01 ü", RequestID: "sum-1", Void: true}
		require.Equal(t, void, r.Fact)
		require.Equal(t, r.ID, void.EventID())
		require.NoError(t, compile(t, void.Type()).Validate(object(t, void)))
		state := session.New("visit/2026-03-01 ü", session.Rules{SessionTTL: time.Hour})
		require.Equal(t, session.Summarized, state.Fold(r).Kind)
		require.True(t, state.Voided(events.SummaryID("visit/2026-03-01 ü", "sum-1")))
	})
	t.Run("fold", func(t *testing.T) {
		t.Parallel()
		state := session.New("visit/2026-03-01 ü", session.Rules{SessionTTL: time.Hour})
		for _, g := range goldens() {
			if r := readRecorded(t, g.name).decode(t); r.SessionID != "" {
				require.Equal(t, g.kind, state.Fold(r).Kind, g.name)
			}
		}
		require.EqualValues(t, 8, state.Erased)
	})
	t.Run("fold to the same tombstones where the turn's own events are gone", func(t *testing.T) {
		t.Parallel()
		live := session.New("visit/2026-03-01 ü", session.Rules{SessionTTL: time.Hour})
		replayed := session.New("visit/2026-03-01 ü", session.Rules{SessionTTL: time.Hour})
		for _, g := range goldens()[:7] {
			r := readRecorded(t, g.name).decode(t)
			live.Fold(r)
			switch r.Fact.(type) {
			case *events.TurnStarted, *events.TurnFinalized, *events.TurnRecorded, *events.TurnExtended,
				*events.TurnCorrected,
				*events.TurnPruned:
			case nil, *events.TurnRedacted, *events.SessionLinked, *events.LinkRefused, *events.SessionReset,
				*events.SessionDescribed, *events.SessionSummarized, *events.SessionForked, *events.SessionBranched,
				*events.SessionErased, *events.IdentityErased, *events.ErasureReceipt:
				replayed.Fold(r)
			}
		}
		require.Len(t, live.Turns, 2)
		require.Equal(t, live, replayed)
	})
	t.Run("are never edited: their sums", func(t *testing.T) {
		t.Parallel()
		sums := must.Get(os.ReadFile("testdata/v1/SHA256SUMS"))(t)
		files := must.Get(filepath.Glob("testdata/v1/*.json"))(t)
		var have strings.Builder
		for _, name := range files {
			fmt.Fprintf(&have, "%x  %s\n", sha256.Sum256(must.Get(os.ReadFile(name))(t)), filepath.Base(name))
		}
		require.Equal(t, string(sums), have.String(), "a recorded envelope is added, never edited or taken away")
		for _, typ := range events.Types() {
			require.Contains(t, files, filepath.Join("testdata/v1", typ+".json"), "each type has a recorded envelope")
		}
	})
	t.Run("validate", func(t *testing.T) {
		t.Parallel()
		for _, g := range goldens() {
			require.NoError(t, compile(t, g.name).Validate(object(t, g.fact)))
		}
	})
}

//conformance:o30
func TestSchemas(t *testing.T) {
	t.Parallel()
	t.Run("there is one for each type and no other", func(t *testing.T) {
		t.Parallel()
		files := must.Get(filepath.Glob("schema/*"))(t)
		var want []string
		for _, typ := range events.Types() {
			want = append(want, schemaFile(typ))
		}
		require.ElementsMatch(t, want, files)
	})
	for _, f := range fullFacts() {
		t.Run(f.Type(), func(t *testing.T) {
			t.Parallel()
			t.Run("holds the members of the struct, each with a description", func(t *testing.T) {
				t.Parallel()
				raw := must.Get(os.ReadFile(schemaFile(f.Type())))(t)
				var schema map[string]any
				require.NoError(t, json.Unmarshal(raw, &schema))
				require.Equal(t, "https://json-schema.org/draft/2020-12/schema", schema["$schema"])
				require.NotEmpty(t, schema["title"])
				require.Equal(t, reflect.TypeOf(f).Elem().Name(), schema["title"])
				compare(t, f.Type(), schema, reflect.TypeOf(f).Elem())
			})
			t.Run("takes what Encode gives, and what later versions add", func(t *testing.T) {
				t.Parallel()
				schema := compile(t, f.Type())
				for _, g := range append(fullFacts(), leastFacts()...) {
					if g.Type() != f.Type() {
						continue
					}
					require.NoError(t, schema.Validate(object(t, g)))
					more := object(t, g)
					more["added_later"] = map[string]any{"n": 1}
					require.NoError(t, schema.Validate(more))
				}
			})
			t.Run("refuses an event without a required member", func(t *testing.T) {
				t.Parallel()
				schema := compile(t, f.Type())
				for _, name := range required(reflect.TypeOf(f).Elem()) {
					less := object(t, f)
					delete(less, name)
					require.Error(t, schema.Validate(less), name)
				}
			})
			t.Run("refuses a member of another kind", func(t *testing.T) {
				t.Parallel()
				schema := compile(t, f.Type())
				for name, v := range object(t, f) {
					wrong := object(t, f)
					wrong[name] = []any{v}
					require.Error(t, schema.Validate(wrong), name)
				}
			})
		})
	}
	t.Run("the full sample sets every member", func(t *testing.T) {
		t.Parallel()
		for _, f := range fullFacts() {
			for name := range members(reflect.TypeOf(f).Elem()) {
				if f.Type() == events.TypeTurnExtended && name == "question_neutral" {
					continue // it extends the answer
				}
				if f.Type() == events.TypeSessionSummarized && name == "void" {
					continue // it stands in the place of all others
				}
				require.Contains(t, object(t, f), name, f.Type())
			}
		}
	})
}

// Where no session is needed to see that an event is wrong, schema and Decode agree.
func TestSchemasAgreeWithDecode(t *testing.T) {
	t.Parallel()
	for _, e := range append(factEdits(), segmentEdits()...) {
		if e.problem == "wrong_turn_id" {
			continue // a schema computes no ids
		}
		t.Run("refuses "+e.property, func(t *testing.T) {
			t.Parallel()
			require.Error(t, compile(t, e.fact.Type()).Validate(object(t, e.fact)))
		})
	}
}

func schemaFile(typ string) string { return filepath.Join("schema", typ+".json") }

func compile(t *testing.T, typ string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	return must.Get(c.Compile(schemaFile(typ)))(t)
}

// object is the body of a fact as a validator sees it.
func object(t *testing.T, f events.Fact) map[string]any {
	t.Helper()
	return must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(envelope(f).Body)))(t).(map[string]any)
}

// compare holds a schema of an object against the struct that it describes, down
// to the structs in it.
func compare(t *testing.T, path string, schema map[string]any, typ reflect.Type) {
	t.Helper()
	require.NotEmpty(t, schema["description"], path)
	require.Equal(t, true, schema["additionalProperties"], path)
	properties := schema["properties"].(map[string]any)
	fields := members(typ)
	for name := range properties {
		require.Contains(t, fields, name, "%s: the schema has a member that the struct has not", path)
	}
	for name, field := range fields {
		at := path + "." + name
		require.Contains(t, properties, name, "the struct has a member that the schema has not")
		property := properties[name].(map[string]any)
		require.NotEmpty(t, property["description"], at)
		inner := field.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case isText(inner):
		case inner.Kind() == reflect.Struct:
			compare(t, at, property, inner)
		case inner.Kind() == reflect.Slice && inner.Elem().Kind() == reflect.Struct && !isText(inner.Elem()):
			compare(t, at, property["items"].(map[string]any), inner.Elem())
		}
	}
	listed, _ := schema["required"].([]any)
	var names []string
	for _, v := range listed {
		names = append(names, v.(string))
	}
	require.ElementsMatch(t, required(typ), names, path)
}

func isText(t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) || t.Kind() == reflect.Slice &&
		t.Elem().Kind() == reflect.Uint8
}

// members are the JSON members of a struct, embedded ones too.
func members(typ reflect.Type) map[string]reflect.StructField {
	out := map[string]reflect.StructField{}
	for field := range typ.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && name == "":
			for k, v := range members(field.Type) {
				out[k] = v
			}
		case name != "-":
			out[name] = field
		}
	}
	return out
}

// required are the members that are always there.
func required(typ reflect.Type) []string {
	var out []string
	for name, field := range members(typ) {
		if _, options, _ := strings.Cut(field.Tag.Get("json"), ","); !strings.Contains(options, "omit") {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
