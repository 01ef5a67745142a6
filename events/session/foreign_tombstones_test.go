package session_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
)

// TestLyingTombstones folds foreign redactions whose tombstones may state anything,
// into a session of which some events may be gone. What a redaction does not cover
// keeps its text; what it covers has none; and nothing comes back as a turn.
func TestLyingTombstones(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := pair()
		truth := w.live.Clone()
		s := w.at(rapid.Uint64Range(0, w.head).Draw(t, "seen up to"))
		w.head = 10
		for range 2 {
			before := s.Clone()
			w.append(lie(t, w, truth))
			c := s.Fold(w.log[len(w.log)-1])
			checkCovered(t, before, s, c)
			if s.Boundary >= s.Applied {
				t.Fatalf("the boundary is %d", s.Boundary)
			}
		}
	})
}

func checkCovered(t *rapid.T, before, s *session.State, c session.Change) {
	covered := map[uuid.UUID]bool{}
	for _, x := range c.Turns {
		covered[x.ID] = true
	}
	for _, x := range before.Turns {
		now := s.Turn(x.ID)
		if covered[x.ID] && x.Status == session.Redacted {
			t.Fatalf("%s is redacted twice", x.RequestID)
		}
		if !covered[x.ID] && (now == nil || now.Question != x.Question || now.Answer != x.Answer ||
			now.Status != x.Status || now.Place != x.Place) {
			t.Fatalf("%s is changed by the redaction of another turn", x.RequestID)
		}
	}
	for _, x := range s.Turns {
		gone := x.Status == session.Redacted
		if covered[x.ID] && !gone || gone == (x.Question != nil) {
			t.Fatalf("%s is %s and has text %v", x.RequestID, x.Status, x.Question)
		}
		for _, v := range s.Chain(x) {
			if (v.Status == session.Redacted) != gone {
				t.Fatalf("%s is %s, and %s of the same turn is %s", x.RequestID, x.Status, v.RequestID, v.Status)
			}
		}
	}
}

// pair is a session of two turns, one of them corrected, and a pending one.
func pair() *world {
	w := newWorld("s", session.Rules{SessionTTL: 24 * time.Hour})
	q, a := events.Question{QuestionNeutral: "q"}, events.Answer{AnswerNeutral: "a"}
	for _, request := range []string{"r1", "r2", "r3"} {
		w.append(&events.TurnStarted{TurnID: w.turn(request), SessionID: "s", RequestID: request, Question: q})
	}
	w.append(&events.TurnFinalized{TurnID: w.turn("r1"), SessionID: "s", Answer: a})
	w.append(&events.TurnFinalized{TurnID: w.turn("r2"), SessionID: "s", Answer: a})
	w.append(&events.TurnCorrected{TurnID: w.turn("c1"), SessionID: "s", RequestID: "c1", ReplacesTurnID: w.turn("r1"),
		Question: q, Answer: a})
	return w
}

// lie is a redaction whose tombstones form a chain, as Decode demands, and else
// state the truth or anything.
func lie(t *rapid.T, w *world, truth *session.State) *events.TurnRedacted {
	requests := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"r1", "c1", "r2", "r3", "x", "y"}), 0, 3,
		rapid.ID).Draw(t, "requests")
	f := &events.TurnRedacted{SessionID: "s", TurnID: w.turn(rapid.SampledFrom(append(requests, "r1")).Draw(t,
		"redacted"))}
	place, version := anySeq(t, "place"), 1
	for i, request := range requests {
		stone := tombstone(t, w, truth, request)
		if i == 0 {
			place, version = min(place, stone.Position.Seq), stone.RecordVersion
			if rapid.Bool().Draw(t, "of another") {
				older := w.turn(rapid.SampledFrom([]string{"r1", "r2", "x"}).Draw(t, "older"))
				stone.ReplacesTurnID = &older
			}
		} else {
			before := &f.Tombstones[i-1]
			older, newer := before.TurnID, stone.TurnID
			stone.ReplacesTurnID, before.ReplacedByTurnID, before.Status = &older, &newer, "replaced"
		}
		stone.Place.Seq, stone.RecordVersion = place, version+i
		stone.Position.Seq = max(stone.Position.Seq, place)
		f.Tombstones = append(f.Tombstones, stone)
	}
	if rapid.Bool().Draw(t, "with mark") {
		f.Session = &events.SessionMark{CreatedAt: epoch, LastActiveAt: epoch,
			Boundary: events.Position{Seq: rapid.Uint64Range(0, 99).Draw(t, "boundary")}}
	}
	return f
}

func tombstone(t *rapid.T, w *world, truth *session.State, request string) events.Tombstone {
	stone := events.Tombstone{TurnID: w.turn(request), RequestID: request, CreatedAt: epoch}
	if x := truth.Turn(stone.TurnID); x != nil && rapid.IntRange(0, 3).Draw(t, "lies") > 0 {
		stone = truth.Tombstones([]*session.Turn{x}, 0)[0]
		stone.ReplacesTurnID, stone.ReplacedByTurnID = nil, nil
	} else {
		final := events.Position{Seq: anySeq(t, "final")}
		stone.Position.Seq, stone.Final, stone.RecordVersion = anySeq(t, "position"), &final, rapid.IntRange(1,
			3).Draw(t, "version")
	}
	stone.Status = rapid.SampledFrom([]string{"pending", "finalized"}).Draw(t, "status")
	return stone
}

func anySeq(t *rapid.T, label string) uint64 { return rapid.Uint64Range(1, 12).Draw(t, label) }

// TestARedactionOfATurnThatNeverWasIsNotBelieved forges what a redaction says of a turn
// whose events are gone: where they stood, and what the session was then.
func TestARedactionOfATurnThatNeverWasIsNotBelieved(t *testing.T) {
	t.Parallel()
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seq uint64) time.Time { return day.Add(time.Duration(seq) * time.Minute) }
	stone := func(seq uint64) events.Tombstone {
		p := events.Position{Seq: seq}
		return events.Tombstone{TurnID: events.TurnID("s", "never"), RequestID: "never", Place: p, Position: p,
			Status: "pending", CreatedAt: at(seq), RecordVersion: 1}
	}
	mark := func(change func(*events.SessionMark)) *events.SessionMark {
		m := &events.SessionMark{CreatedAt: at(1), LastActiveAt: at(6), Finalized: 3, Pending: 1, ShownFinalized: 3,
			ShownPending: 1}
		change(m)
		return m
	}
	for name, c := range map[string]struct {
		stone events.Tombstone
		mark  *events.SessionMark
	}{
		"where another turn began":        {stone(1), nil},
		"where another turn was answered": {stone(4), nil},
		"fewer turns than there are": {stone(8), mark(func(m *events.SessionMark) {
			m.Finalized, m.Pending, m.ShownFinalized, m.ShownPending = 0, 0, 0, 0
		})},
		"fewer shown than there are": {stone(8), mark(func(m *events.SessionMark) {
			m.ShownFinalized, m.ShownPending = 0, 1
		})},
		"a later beginning":          {stone(8), mark(func(m *events.SessionMark) { m.CreatedAt = at(3) })},
		"active after the redaction": {stone(8), mark(func(m *events.SessionMark) { m.LastActiveAt = at(100) })},
	} {
		s := session.New("s", session.Rules{SessionTTL: 24 * time.Hour})
		fold := func(seq uint64, f events.Fact) session.Change {
			return s.Fold(events.Recorded{ID: f.EventID(), SessionID: "s", Fact: f, Position: events.Position{Seq: seq},
				Time: at(seq)})
		}
		for i := range uint64(3) {
			id := events.TurnID("s", fmt.Sprint(i))
			fold(2*i+1, &events.TurnStarted{TurnID: id, SessionID: "s", RequestID: fmt.Sprint(i)})
			fold(2*i+2, &events.TurnFinalized{TurnID: id, SessionID: "s"})
		}
		before := s.Head()
		got := fold(10, &events.TurnRedacted{TurnID: events.TurnID("s", "never"), SessionID: "s",
			Tombstones: []events.Tombstone{c.stone}, Session: c.mark})
		require.Equal(t, session.Anomaly, got.Kind, name)
		require.Equal(t, before, s.Head(), name)
		require.Len(t, s.Turns, 3, name)
		// Of a boundary out of nothing nothing is believed: the redaction counts as one that says nothing of the
		// session.
		m := mark(func(m *events.SessionMark) { m.Boundary.Seq, m.ShownFinalized, m.ShownPending = 6, 0, 1 })
		fold(11, &events.TurnRedacted{TurnID: events.TurnID("s", "never"), SessionID: "s",
			Tombstones: []events.Tombstone{stone(8)}, Session: m})
		require.Zero(t, s.Boundary, name)
		require.Equal(t, 3, s.ShownFinalized, name)
		require.Zero(t, s.ShownPending, name)
	}
}

// TestNoRedactionUndoesAReset: one that brings back a turn that the log has lost, and says
// that the session had no boundary then, leaves what was reset behind the reset.
func TestNoRedactionUndoesAReset(t *testing.T) {
	t.Parallel()
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := session.New("s", session.Rules{SessionTTL: 24 * time.Hour})
	fold := func(seq uint64, f events.Fact) session.Change {
		return s.Fold(events.Recorded{ID: f.EventID(), SessionID: "s", Fact: f, Position: events.Position{Seq: seq},
			Time: day.Add(time.Duration(seq) * time.Minute)})
	}
	kept := events.TurnID("s", "kept")
	fold(2, &events.TurnStarted{TurnID: kept, SessionID: "s", RequestID: "kept"})
	fold(3, &events.TurnFinalized{TurnID: kept, SessionID: "s"})
	fold(5, &events.SessionReset{SessionID: "s", After: events.Position{Seq: 4}})
	require.EqualValues(t, 5, s.Boundary)
	gone := events.Position{Seq: 1}
	got := fold(9, &events.TurnRedacted{
		TurnID: events.TurnID("s", "gone"), SessionID: "s",
		Tombstones: []events.Tombstone{{TurnID: events.TurnID("s", "gone"), RequestID: "gone", Place: gone,
			Position: gone, Status: "pending", CreatedAt: day, RecordVersion: 1}},
		Session: &events.SessionMark{CreatedAt: day, LastActiveAt: day.Add(3 * time.Minute), Finalized: 1,
			Pending: 1, ShownFinalized: 1, ShownPending: 1},
	})
	require.Equal(t, session.TurnGone, got.Kind)
	require.EqualValues(t, 5, s.Boundary)
	require.False(t, s.Shown(s.Turn(kept)))
}

// TestATombstoneWaitsForNoBoundary: where the first event after a silence was erased too, for a redaction that came
// later, an earlier redaction's tombstone is there all the same, and the later one brings the boundary.
func TestATombstoneWaitsForNoBoundary(t *testing.T) {
	t.Parallel()
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	full := session.New("s", session.Rules{SessionTTL: 24 * time.Hour})
	var log []events.Recorded
	add := func(after time.Duration, f events.Fact) {
		day = day.Add(after)
		e := events.Recorded{ID: f.EventID(), SessionID: "s", Fact: f, Position: events.Position{Seq: uint64(len(log) +
			1)}, Time: day}
		require.True(t, full.Fold(e).Kind.ChangesView())
		log = append(log, e)
	}
	begin := func(after time.Duration, request string) {
		add(after, &events.TurnStarted{TurnID: events.TurnID("s", request), SessionID: "s", RequestID: request})
	}
	redact := func(request string) {
		add(time.Minute, decide.Redact{TurnID: events.TurnID("s", request)}.On(full).Facts[0])
	}
	begin(0, "old")
	begin(25*time.Hour, "first")
	begin(time.Minute, "second")
	begin(time.Minute, "third")
	redact("second")
	redact("first")
	redact("old")
	left := session.New("s", session.Rules{SessionTTL: 24 * time.Hour})
	for _, e := range log[3:] {
		require.True(t, left.Fold(e).Kind.ChangesView(), "%T at %d", e.Fact, e.Position.Seq)
	}
	require.Equal(t, full.Head(), left.Head())
	require.Len(t, left.Turns, len(full.Turns))
	for i, want := range full.Turns {
		require.Equal(t, [3]any{want.ID, want.Status, want.Place}, [3]any{left.Turns[i].ID, left.Turns[i].Status,
			left.Turns[i].Place})
	}
}

// An event that names a turn and comes after the turn's redaction is an anomaly with this code, whatever its type: that
// is how the eraser finds it. The recorded envelopes hold an event of each type.
func TestAnEventAfterARedactionIsTold(t *testing.T) {
	t.Parallel()
	files := must.Get(filepath.Glob("../testdata/v1/*.json"))(t)
	told := 0
	for _, file := range files {
		f := recorded(t, file)
		if f == nil {
			continue
		}
		if _, goes := events.Remains(f); !goes {
			continue
		}
		w := newWorld("s", session.Rules{})
		redacted := w.turn("r")
		w.append(&events.TurnStarted{
			TurnID: redacted, SessionID: "s", RequestID: "r", Question: events.Question{QuestionNeutral: "question"},
		})
		gone := w.append(decide.Redact{TurnID: redacted}.On(w.live).Facts[0])
		require.Equal(t, session.TurnGone, gone.Kind)
		about(f, redacted)
		c := w.append(f)
		require.Equal(t, session.Anomaly, c.Kind, f.Type())
		require.Equal(t, session.CodeTurnRedacted, c.Reason, f.Type())
		told++
	}
	require.GreaterOrEqual(t, told, 3)
}

// recorded returns the fact of a recorded envelope.
func recorded(t *testing.T, file string) events.Fact {
	t.Helper()
	raw := must.Get(os.ReadFile(file))(t)
	var env struct {
		Subject string
		Headers map[string][]string
		Body    json.RawMessage
	}
	require.NoError(t, json.Unmarshal(raw, &env))
	return events.Decode(events.Envelope{Subject: env.Subject, Header: env.Headers, Body: env.Body},
		events.Position{Seq: 1}, epoch).Fact
}

// about sets the ids of a fact to those of a redacted turn of session s, whose request was r.
func about(f events.Fact, redacted uuid.UUID) {
	v := reflect.ValueOf(f).Elem()
	set := func(name string, to any) bool {
		field := v.FieldByName(name)
		if field.IsValid() {
			field.Set(reflect.ValueOf(to))
		}
		return field.IsValid()
	}
	set("SessionID", "s")
	if set("ReplacesTurnID", redacted) {
		set("TurnID", events.TurnID("s", "later"))
		set("RequestID", "later")
		return
	}
	set("TurnID", redacted)
	set("RequestID", "r")
}

func TestKindsHaveNames(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for k := session.Seen; k <= session.Erased; k++ { // add a new last kind here
		require.NotEmpty(t, k.String())
		require.False(t, names[k.String()], "%s names two kinds", k)
		names[k.String()] = true
	}
}
