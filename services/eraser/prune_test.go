package eraser_test

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/eraser"
)

// prune takes the messages out of a turn that hold a word.
func (w *world) prune(sessionID string, turn uuid.UUID, id, word string) services.Turn {
	w.Helper()
	return must.Get(w.history.PruneTurn(w.Context(), decide.Prune{SessionID: sessionID, TurnID: turn, PruneID: id,
		Keep: func(m session.Message) json.RawMessage {
			if strings.Contains(string(m.Raw), word) {
				return nil
			}
			return m.Raw
		}}))(w)
}

func (w *world) extend(session string, turn uuid.UUID, id, text string) {
	w.publish(extended(session, turn, id, text), "")
}

func extended(session string, turn uuid.UUID, id, text string) *events.TurnExtended {
	return &events.TurnExtended{TurnID: turn, SessionID: session, ExtensionID: id, Extension: events.Extension{
		Half: events.HalfAnswer, Messages: []byte(`[{"role":"tool","content":"` + text + `"}]`)}}
}

// What a prune took out leaves the log with every event before it, also what comes again after it, from whom ever. The
// turn stays what it was.
//
//conformance:o31
func TestWhatAPruneTookLeavesTheLog(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"the eraser", "the prune"} {
		t.Run("first "+first, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			begin := func() { w.erase(inOnePiece(w.log), eraser.Config{}) }
			if first == "the eraser" {
				begin()
			}
			other := w.turn("s", "r0", "KEPT")
			turn := w.turn("s", "r1", "STAYS")
			w.extend("s", turn, "e1", "SECRET")
			w.extend("s", turn, "e2", "STAYS TOO")
			w.summarize("s", "m1", turn, "all with SECRET")
			before := w.prune("s", turn, "p1", "SECRET")
			if first == "the prune" {
				w.extend("s", turn, "e1", "SECRET") // late
				begin()
			}
			two := []string{events.TypeTurnStarted, events.TypeTurnFinalized}
			w.left("s", append(two, events.TypeTurnPruned, events.TypeSessionSummarized)...) // the note that it is void
			require.Empty(t, holding(t, w.dir, "SECRET"))
			require.NotEmpty(t, holding(t, w.dir, "STAYS TOO"))
			state := w.state("s")
			require.Equal(t, other, state.Turns[0].ID)
			require.JSONEq(t, string(before.Answer.AnswerMessages), string(state.Turns[1].Answer.AnswerMessages))
			require.Equal(t, before.FinalizedAt, state.Turns[1].FinalizedAt)

			// A retry of anything from before is late, with the same id or another one.
			w.extend("s", turn, "e1", "SECRET")
			w.publish(&events.TurnStarted{TurnID: turn, SessionID: "s", RequestID: "r1",
				Question: events.Question{QuestionNeutral: "SECRET"}}, "again")
			w.publish(&events.TurnFinalized{TurnID: turn, SessionID: "s",
				Answer: events.Answer{AnswerNeutral: "SECRET"}}, "again")
			w.extend("s", turn, "e3", "NEXT SECRET")
			w.prune("s", turn, "p2", "NEXT")
			two = append(two, events.TypeSessionSummarized)
			w.left("s", append(two, events.TypeTurnPruned)...)
			require.Empty(t, holding(t, w.dir, "SECRET"))
			session := must.Get(eraser.SessionOfErased(t.Context(), w.notes, turn.String()))(t)
			require.Equal(t, "s", session, "by which its responses are found")
			w.redact("s", turn)
			w.left("s", append(two, events.TypeTurnRedacted)...)
			require.Empty(t, holding(t, w.dir, "STAYS"))
		})
	}
}

// The versions that a pruned turn replaced go for ever.
func TestVersionsOfAPrunedTurnLeaveTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.erase(inOnePiece(w.log), eraser.Config{})
	first := w.turn("s", "r1", "SECRET-1")
	second := w.correct("s", "c1", first, "STAYS")
	w.extend("s", second, "e1", "GOES")
	w.prune("s", second, "p1", "GOES")
	w.left("s", events.TypeTurnPruned)
	require.Empty(t, holding(t, w.dir, "GOES"))
	require.Empty(t, holding(t, w.dir, "answer SECRET-1"))
	state := w.state("s")
	require.Equal(t, session.Redacted, state.Turn(first).Status)
	require.Equal(t, "STAYS", state.Turn(second).Answer.AnswerNeutral)
	w.publish(&events.TurnCorrected{TurnID: events.TurnID("s", "c9"), SessionID: "s", RequestID: "c9",
		ReplacesTurnID: first, Question: events.Question{QuestionNeutral: "GOES"},
		Answer: events.Answer{AnswerNeutral: "GOES"}}, "")
	w.left("s", events.TypeTurnPruned)
	require.Empty(t, holding(t, w.dir, "GOES"))
}

// A prune whose tombstones are not those of the log takes nothing away.
func TestAForeignPruneTakesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.erase(inOnePiece(w.log), eraser.Config{})
	turn := w.turn("s", "r1", "KEPT")
	state := w.state("s")
	stones := state.Tombstones(state.Turns, 0)
	wrong := func(id string, change func(f *events.TurnPruned)) {
		f := &events.TurnPruned{TurnID: turn, SessionID: "s", PruneID: id, Tombstones: state.Tombstones(state.Turns, 0),
			Session: &events.SessionMark{CreatedAt: stones[0].CreatedAt, LastActiveAt: stones[0].CreatedAt,
				Finalized: 1, ShownFinalized: 1}}
		change(f)
		w.publish(f, "")
	}
	wrong("later", func(f *events.TurnPruned) { f.Tombstones[0].Final.Seq++ })
	wrong("older", func(f *events.TurnPruned) { f.Tombstones[0].CreatedAt = stones[0].CreatedAt.Add(-1) })
	w.turn("s", "r2", "other")
	gone := w.turn("s", "r3", "SECRET")
	w.redact("s", gone)
	w.left("s", events.TypeTurnStarted, events.TypeTurnFinalized, events.TypeTurnPruned, events.TypeTurnPruned,
		events.TypeTurnStarted, events.TypeTurnFinalized, events.TypeTurnRedacted)
	require.Equal(t, "answer KEPT", w.state("s").Turn(turn).Answer.AnswerNeutral)
	// One with the right tombstones and a wrong mark is shown, but its events stay: without them the session would fold
	// to another state.
	wrong("mark", func(f *events.TurnPruned) { f.Session.Finalized = 7 })
	w.redact("s", w.turn("s", "r4", "SECRET"))
	w.left("s", events.TypeTurnStarted, events.TypeTurnFinalized, events.TypeTurnPruned, events.TypeTurnPruned,
		events.TypeTurnStarted, events.TypeTurnFinalized, events.TypeTurnRedacted, events.TypeTurnPruned,
		events.TypeTurnRedacted)
	require.Nil(t, w.state("s").Turn(turn).Question.QuestionMessages)
	require.Empty(t, w.state("s").Turn(turn).Answer.AnswerNeutral)
}

// No note names a session, a turn or an identity when the erasure of the identity is complete: whatever the eraser
// noted before of prunes, responses, late events, summaries and progress.
//
//conformance:h64
func TestNoNoteOutlivesAnErasure(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	view := &place{name: "view"}
	view.follow()
	w.erase(inOnePiece(w.log), eraser.Config{Places: []eraser.Place{view}, Rate: 1_000})
	traces := []string{"alice", "session-1", "session-2"}
	for _, session := range []string{"session-1", "session-2"} {
		pruned := w.turn(session, "r1", "STAYS")
		w.extend(session, pruned, "e1", "SECRET")
		redacted := events.TurnID(session, "r2")
		start := &events.TurnStarted{TurnID: redacted, SessionID: session, RequestID: "r2",
			Question: events.Question{QuestionNeutral: "SECRET"}, Settings: json.RawMessage(`{"request":{"user":"u"}}`)}
		w.publish(start, "")
		w.summarize(session, "m", pruned, "SECRET")
		w.prune(session, pruned, "p1", "SECRET")
		w.redact(session, redacted)
		w.idle()
		for _, turn := range []uuid.UUID{pruned, redacted} {
			require.Equal(t, session, must.Get(eraser.SessionOfErased(t.Context(), w.notes, turn.String()))(t))
			traces = append(traces, turn.String())
		}
		w.publish(start, "late")
		w.link(session, "alice")
	}
	w.complete(must.Get(w.history.EraseIdentity(t.Context(), "alice", services.Erasure{}))(t), view)
	w.idle()
	for _, trace := range slices.Clone(traces) {
		traces = append(traces, base64.RawURLEncoding.EncodeToString([]byte(trace)))
	}
	notes := 0
	require.NoError(t, w.notes.Each(t.Context(), ">", func(n jetlog.Note[json.RawMessage]) error {
		notes++
		for _, trace := range traces {
			require.NotContains(t, n.Key+" "+string(n.Value), trace)
		}
		return nil
	}))
	require.Positive(t, notes, "the search sees notes")
}
