package session_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
)

// long is a session of n turns, every fifth of them corrected late.
func long(n int) *world {
	w := newWorld("s", session.Rules{SessionTTL: 24 * time.Hour})
	q, a := events.Question{QuestionNeutral: "q"}, events.Answer{AnswerNeutral: "a"}
	for i := range n {
		request := fmt.Sprint("r", i)
		w.append(&events.TurnStarted{TurnID: w.turn(request), SessionID: "s", RequestID: request, Question: q})
		w.append(&events.TurnFinalized{TurnID: w.turn(request), SessionID: "s", Answer: a})
	}
	for i := 0; i < n; i += 5 {
		request := fmt.Sprint("c", i)
		w.append(&events.TurnCorrected{
			TurnID: w.turn(request), SessionID: "s", RequestID: request, ReplacesTurnID: w.turn(fmt.Sprint("r", i)),
			Question: q, Answer: a,
		})
	}
	return w
}

// found are the turns that the state finds by their ids, of those that it may hold.
func found(t *testing.T, s *session.State, w *world) int {
	t.Helper()
	held := map[uuid.UUID]*session.Turn{}
	for _, x := range s.Turns {
		held[x.ID] = x
	}
	for id := range w.names {
		require.Same(t, held[id], s.Turn(id), w.names[id])
	}
	return len(held)
}

func TestLongSessions(t *testing.T) {
	t.Parallel()
	t.Run("each turn is found, at any length", func(t *testing.T) {
		t.Parallel()
		for _, n := range []int{0, 1, 26, 27, 28, 31, 32, 33, 100} {
			w := long(n)
			require.Equal(t, n+(n+4)/5, found(t, w.live, w))
			require.Equal(t, session.Counts{Finalized: n, ShownFinalized: n}, w.live.Counts)
		}
	})
	t.Run("the order is that of the places, however late a correction came", func(t *testing.T) {
		t.Parallel()
		w := long(40)
		for i := 1; i < len(w.live.Turns); i++ {
			a, b := w.live.Turns[i-1], w.live.Turns[i]
			require.True(t, a.Place < b.Place || a.Place == b.Place && a.Version < b.Version)
		}
	})
	t.Run("DropOldest leaves the newest, and is honest about it", func(t *testing.T) {
		t.Parallel()
		w := long(100)
		s := w.live.Clone()
		require.Zero(t, s.DropOldest(120))
		require.True(t, s.Whole)
		require.Equal(t, 110, s.DropOldest(10))
		require.False(t, s.Whole)
		require.Equal(t, 10, found(t, s, w))
		require.Equal(t, "r99", s.Turns[9].RequestID)
		require.Equal(t, 120, found(t, w.live, w), "the original is untouched")
	})
	t.Run("Remove takes out what it is told to, and is honest about it", func(t *testing.T) {
		t.Parallel()
		w := long(100)
		replaced := func(x *session.Turn) bool { return x.Status == session.Replaced }
		w.live.Remove(replaced)
		require.Equal(t, 100, found(t, w.live, w))
		require.False(t, w.live.Whole)
	})
	t.Run("an erasure forgets them all", func(t *testing.T) {
		t.Parallel()
		w := long(40)
		w.append(&events.SessionErased{SessionID: "s", ReceiptID: "x"})
		require.Zero(t, found(t, w.live, w))
		require.False(t, w.live.Found())
	})
}

func TestClone(t *testing.T) {
	t.Parallel()
	t.Run("of the last n turns", func(t *testing.T) {
		t.Parallel()
		w := long(50)
		copies := map[*session.State]int{w.live.Clone(): 60}
		for _, n := range []int{0, 1, 31, 32, 60, 61} {
			copies[w.live.CloneLast(n)] = min(n, 60)
		}
		for c, want := range copies {
			require.Equal(t, want, found(t, c, w))
			require.Equal(t, want == 60, c.Whole)
			require.Equal(t, w.live.Head(), c.Head())
		}
	})
	t.Run("shares no turn with its original", func(t *testing.T) {
		t.Parallel()
		w := long(50)
		c := w.live.Clone()
		for i := range c.Turns {
			require.NotSame(t, c.Turns[i], w.live.Turns[i])
		}
		w.append(&events.TurnRedacted{TurnID: w.turn("r0"), SessionID: "s"})
		require.Equal(t, session.Replaced, c.Turn(w.turn("r0")).Status)
		require.NotNil(t, c.Turn(w.turn("c0")).Question)
	})
}

func TestHead(t *testing.T) {
	t.Parallel()
	t.Run("is all of a session but its turns: a state that adopts it goes on like the original", func(t *testing.T) {
		t.Parallel()
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 2))
		w := long(3)
		w.append(&events.SessionReset{SessionID: "s", After: events.Position{Seq: w.head}})
		w.append(&events.SessionLinked{SessionID: "s", IdentityID: "alice"})
		adopted := session.New("s", w.rules)
		adopted.Adopt(w.live.Head())
		w.clock = w.clock.Add(time.Duration(random.IntN(100)) * time.Hour)
		w.append(&events.TurnStarted{TurnID: w.turn("new"), SessionID: "s", RequestID: "new",
			Question: events.Question{QuestionNeutral: "q"}})
		adopted.Fold(w.log[len(w.log)-1])
		require.Equal(t, w.live.Head(), adopted.Head(), "seed %d", seed)
	})
}

// A raw publisher writes what it likes; no view shows it.
//
//conformance:h31 h32
func TestTheFoldDropsMetadataThatIsNotAllowed(t *testing.T) {
	t.Parallel()
	id := events.TurnID("s", "r1")
	facts := []events.Fact{
		&events.TurnStarted{TurnID: id, SessionID: "s", RequestID: "r1", Question: events.Question{QuestionNeutral: "q",
			Metadata: json.RawMessage(`{"channel":"web","phone":"555"}`)}},
		&events.TurnFinalized{TurnID: id, SessionID: "s", Answer: events.Answer{AnswerNeutral: "a"},
			Metadata: json.RawMessage(`{"email":"x","finish_reason":"length"}`)},
		&events.TurnCorrected{
			TurnID: events.TurnID("s", "c1"), SessionID: "s", RequestID: "c1", ReplacesTurnID: id,
			Question: events.Question{QuestionNeutral: "q", Metadata: json.RawMessage(`{"channel":"web"}`)},
			Answer:   events.Answer{AnswerNeutral: "b"},
		},
	}
	fold := func(keys []string) *session.State {
		s := session.New("s", session.Rules{MetadataKeys: keys})
		for i, f := range facts {
			env := must.Get(events.Encode(f, time.Now()))(t)
			e := events.Decode(env, events.Position{Seq: uint64(i + 1)}, time.Now())
			require.True(t, s.Fold(e).Kind.ChangesView())
		}
		return s
	}
	s := fold([]string{"channel", "locale"})
	require.JSONEq(t, `{"channel":"web","finish_reason":"length"}`, string(s.Turns[0].Metadata()), "but Turnledger's own")
	require.Equal(t, `{"channel":"web"}`, string(s.Turns[1].Metadata()))
	require.Empty(t, fold([]string{}).Turns[1].Metadata())
	require.JSONEq(t, `{"channel":"web","phone":"555","email":"x","finish_reason":"length"}`, string(fold(nil).Turns[0].Metadata()))
	require.Contains(t, string(facts[0].(*events.TurnStarted).Metadata), "phone", "the fact stays as it is")
}

// Turnledger's own keys are shown as it writes them, and hold nobody else's words.
func TestMetadataOfItsOwnIsNobodyElses(t *testing.T) {
	t.Parallel()
	r := session.Rules{MetadataKeys: []string{"channel"}}
	for _, raw := range []string{`{"question_neutral_is_fallback": true}`, `{"finish_reason": "interrupted"}`,
		`{"usage": {"input_tokens": 1, "output_tokens": 2, "cached_tokens": 1}}`} {
		require.Equal(t, raw, string(r.Metadata([]byte(raw))))
	}
	for _, raw := range []string{`{"question_neutral_is_fallback": "555"}`, `{"finish_reason": "555"}`, `{"finish_reason": {"length": "555"}}`,
		`{"usage": "555"}`, `{"usage": null}`, `{"usage": {"input_tokens": "555"}}`, `{"usage": {"phone": 555}}`,
		`{"usage": {"input_tokens": -1}}`, `{"usage": [{"input_tokens": 1}]}`} {
		require.Empty(t, r.Metadata([]byte(raw)))
	}
	r.MetadataKeys = []string{session.FinishKey}
	require.Equal(t, `{"finish_reason": "theirs"}`, string(r.Metadata([]byte(`{"finish_reason": "theirs"}`))),
		"it is allowed")
}

// Why the chat's answer ended is no more said of one that was corrected; where its question was, it still is.
func TestACorrectedAnswerIsWhole(t *testing.T) {
	t.Parallel()
	id := events.TurnID("s", "r1")
	s := session.New("s", session.Rules{})
	for i, f := range []events.Fact{
		&events.TurnStarted{TurnID: id, SessionID: "s", RequestID: "r1",
			Question: events.Question{QuestionNeutral: "q"}},
		&events.TurnFinalized{TurnID: id, SessionID: "s", Answer: events.Answer{AnswerNeutral: "a"}, Metadata: json.RawMessage(`{"channel":"web","finish_reason":"length","usage":{"input_tokens":1,"output_tokens":2}}`)},
	} {
		env := must.Get(events.Encode(f, time.Now()))(t)
		s.Fold(events.Decode(env, events.Position{Seq: uint64(i + 1)}, time.Now()))
	}
	text := "b"
	c := decide.Correct{SessionID: "s", TurnID: id, RequestID: "c1", AnswerNeutral: &text}
	require.JSONEq(t, `{"channel":"web"}`,
		string(c.On(s, s.Turn(id)).Facts[0].(*events.TurnCorrected).Metadata))
	c.AnswerNeutral, c.QuestionNeutral = nil, &text
	require.JSONEq(t, `{"channel":"web","finish_reason":"length","usage":{"input_tokens":1,"output_tokens":2}}`, string(c.On(s, s.Turn(id)).Facts[0].(*events.TurnCorrected).Metadata))
}

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
		child := session.New("child", session.Rules{})
		for i, f := range facts {
			child.Fold(events.Recorded{Fact: f, Position: events.Position{Seq: uint64(i + 1)}, Time: time.Now()})
		}
		changed := mark
		changed.Segments = append([]events.Segment{}, mark.Segments...)
		change(&changed)
		exact := must.Get(events.Encode(&changed, time.Now()))(t)
		parent := session.New("parent", session.Rules{})
		parent.Fold(events.Recorded{Fact: &changed, Digest: events.Digest(exact.Body),
			Position: events.Position{Seq: mark.At.Seq + 1}, Time: time.Now()})
		require.Len(t, parent.Branches(), 1)
		is := session.Made(&changed, child.Fork())
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
