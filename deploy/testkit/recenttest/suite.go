package recenttest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
	"github.com/turnledger/turnledger/projections/recent"
)

// Run tests a backend by the contract of recent.Reader, with its dead letters.
func Run(t *testing.T, open Open) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, Open)
	}{
		{"an unknown session is not held", unknown},
		{"the window is the newest finalized turns and what is pending among them", window},
		{"redacted and replaced turns leave at once", leave},
		{"a redaction covers all versions", chain},
		{"a redaction whose turn is gone from the log", restored},
		{"the cap holds on every append", capped},
		{"a session expires after its last activity", expiry},
		{"what has expired does not come back by applying it again", notProlonged},
		{"linked sessions keep their turns", linked},
		{"reset and silence move the boundary", boundary},
		{"an erased session leaves a closed head", erased},
		{"contradictions change nothing", anomalies},
		{"texts and JSON come back byte for byte", exact},
		{"any prefix may come again", deliveredAgain},
		{"a rival fences", fenced},
		{"a crash between batches loses nothing", crash},
		{"a view that begins later knows what it lacks", begunLater},
		{"a parked event leaves its session to the log", parked},
		{"a retried dead letter brings the session back from the log", retried},
		{"a dropped dead letter keeps who and why", dropped},
		{"a retry that the view overtakes is not taken", overtaken},
		{"waiting ends at the position or with the ctx", waiting},
		{"a snapshot is the caller's own", ownCopy},
		{"reads beside writes are consistent", concurrent},
		{"random logs, delivered at random", randomly},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, open)
		})
	}
}

func unknown(t *testing.T, open Open) {
	w := newWorld(t, open)
	require.Nil(t, w.load("s", -1).State)
	require.Zero(t, w.load("s", -1).Applied)
	w.turn("other", "a").flush()
	require.Nil(t, w.load("s", -1).State)
	require.Equal(t, events.Position{Seq: 2}, w.load("s", -1).Applied)
}

func window(t *testing.T, open Open) {
	w := newWorld(t, open)
	w.start("s", "a").turn("s", "b", "c").start("s", "d").turn("s", "e").start("s", "f").flush()
	for shown, want := range map[int][]string{
		-1: {"a?", "b", "c", "d?", "e", "f?"}, 0: {}, 1: {"e", "f?"}, 2: {"c", "d?", "e", "f?"}, 3: {"b", "c", "d?",
			"e", "f?"},
		4: {"a?", "b", "c", "d?", "e", "f?"}, 1000: {"a?", "b", "c", "d?", "e", "f?"},
	} {
		require.Equal(t, want, w.requests("s", shown), "last %d", shown)
		require.Equal(t, len(want) == 6, w.state("s", shown).Whole, "last %d", shown)
		require.Equal(t, session.Counts{Finalized: 3, Pending: 3, ShownFinalized: 3, ShownPending: 3},
			w.state("s", shown).Counts)
	}
}

func leave(t *testing.T, open Open) {
	w := newWorld(t, open)
	w.turn("s", "a", "b", "c").start("s", "d").flush()
	require.True(t, w.state("s", -1).Whole)
	w.redact("s", "b").flush()
	require.Equal(t, []string{"a", "c", "d?"}, w.requests("s", -1))
	require.False(t, w.state("s", -1).Whole, "a tombstone is missing")
	w.correct("s", "a", "a2").redact("s", "d").flush()
	require.Equal(t, []string{"a2", "c"}, w.requests("s", -1), "a correction stands in its turn's place")
	held := w.state("s", -1).Turns[0]
	require.Equal(t, ID("s", "a"), held.Replaces)
	require.Equal(t, 2, held.Version)
	w.answer("s", "d").start("s", "b").flush()
	require.Equal(t, []string{"a2", "c"}, w.requests("s", -1), "nothing brings a redacted turn back")
}

func chain(t *testing.T, open Open) {
	w := newWorld(t, open)
	w.turn("chain", "a", "b").correct("chain", "a", "a2").correct("chain", "a2", "a3").flush()
	require.Equal(t, []string{"a3", "b"}, w.requests("chain", -1))
	w.redact("chain", "a").flush()
	require.Equal(t, []string{"b"}, w.requests("chain", -1))

	// A foreign publisher names a version that was replaced long ago, and gives no tombstones.
	w.turn("chain", "c").correct("chain", "c", "c2").correct("chain", "c2", "c3").flush()
	w.add(&events.TurnRedacted{TurnID: ID("chain", "c"), SessionID: "chain"}).flush()
	require.Equal(t, []string{"b"}, w.requests("chain", -1))
}

// restored plays the log of a session whose redacted turn was erased: only the redaction still names the turn.
func restored(t *testing.T, open Open) {
	before := newWorld(t, open)
	before.turn("s", "a", "b").redact("s", "a")
	w := newWorld(t, open)
	for _, e := range before.log.Events {
		if f, ok := e.Fact.(interface{ EventID() string }); ok && e.Position.Seq <= 2 {
			w.add(&events.LinkRefused{SessionID: "other", IdentityID: f.EventID()})
			continue
		}
		w.add(e.Fact)
	}
	w.turn("s", "c").flush()
	require.Equal(t, []string{"b", "c"}, w.requests("s", -1))
	require.Equal(t, Plain(before.turn("s", "c").flush().state("s",
		-1)).(map[string]any)["turns"].([]any)[0].(map[string]any)["RequestID"], "b")
	require.Equal(t, session.Counts{Finalized: 2, ShownFinalized: 2}, w.state("s", -1).Counts)
}

func capped(t *testing.T, open Open) {
	w := newWorld(t, open)
	var want []string
	for i := range 3 * limits.MaxTurns {
		r := fmt.Sprint(i)
		want = append(want, r)
		w.start("s", r).flush()
		require.LessOrEqual(t, len(w.state("s", -1).Turns), limits.MaxTurns)
		w.answer("s", r).flush()
		require.Equal(t, i < limits.MaxTurns, w.state("s", -1).Whole)
		require.Equal(t, want[max(0, len(want)-limits.MaxTurns):], w.requests("s", -1))
		require.Equal(t, i+1, w.state("s", -1).Finalized, "the counts go over all turns")
	}
}

func ownCopy(t *testing.T, open Open) {
	w := newWorld(t, open)
	w.turn("s", "a", "b").flush()
	s := w.state("s", -1)
	s.Turns[0].Status, s.Turns[0].RequestID = session.Redacted, "?"
	s.Turns = s.Turns[:1]
	s.Identity, s.Boundary = "x", 99
	require.Equal(t, []string{"a", "b"}, w.requests("s", -1))
	require.Zero(t, w.state("s", -1).Boundary)

	tail := w.state("s", -1)
	w.turn("s", "c")
	for _, e := range w.log.Events {
		tail.Fold(e)
	}
	w.flush()
	require.Equal(t, Plain(w.state("s", -1)), Plain(tail), "a whole state takes the tail that the view has not seen")
}

// gone waits until the view no longer holds a session.
func (w *world) gone(session string) {
	w.t.Helper()
	hang.Until(w.t, func() bool { return w.load(session, -1).State == nil }, "the session must go")
}

func expiry(t *testing.T, open Open) {
	w := newWorld(t, open)
	// Two turns long ago, and one that expires in a second.
	w.now = time.Now().Add(-ttl - 10*time.Hour)
	w.turn("old", "a")
	w.turn("s", "b")
	w.now = time.Now().Add(-ttl + time.Second)
	w.start("s", "c").flush()
	require.Nil(t, w.load("old", -1).State)
	w.gone("s")
	require.Greater(t, time.Since(w.now), ttl, "it must not go early")
}

func notProlonged(t *testing.T, open Open) {
	w := newWorld(t, open)
	w.now = time.Now().Add(-ttl + time.Second)
	w.turn("s", "a")
	w.now = w.now.Add(-2 * time.Hour)
	w.turn("late", "b")
	for range 2 {
		w.view = open(t, limits, rules)
		w.feed = NewFeed(t, w.log, w.view, 0)
		w.flush()
		require.Nil(t, w.load("late", -1).State)
	}
	w.gone("s")
	// The next event belongs to a session of which the view holds nothing.
	w.now = time.Now()
	w.start("s", "c").flush()
	require.Equal(t, []string{"c?"}, w.requests("s", -1))
	require.False(t, w.state("s", -1).Whole)
}

func linked(t *testing.T, open Open) {
	w := newWorld(t, open)
	w.turn("s", "a").link("s", "me").turn("s", "b").flush()
	s := w.state("s", -1)
	require.Equal(t, "me", s.Identity)
	require.Equal(t, uint64(3), s.LinkedAt)
	require.Equal(t, []string{"a", "b"}, w.requests("s", -1))
	require.True(t, s.Whole)
	w.link("new", "me").flush()
	require.Equal(t, "me", w.state("new", -1).Identity)
	require.Empty(t, w.requests("new", -1))
}

func boundary(t *testing.T, open Open) {
	w := newWorld(t, open)
	w.turn("s", "a").reset("s").turn("s", "b").flush()
	s := w.state("s", -1)
	require.Equal(t, []string{"a", "b"}, w.requests("s", -1))
	require.Equal(t, uint64(3), s.ResetAt)
	require.False(t, s.Shown(s.Turns[0]))
	require.True(t, s.Shown(s.Turns[1]))
	require.Equal(t, 1, s.ShownFinalized)

	// Events from before and from after the silence can't both be held.
	w.now = time.Now().Add(-ttl - time.Hour)
	w.turn("silent", "a")
	w.now = time.Now()
	w.turn("silent", "b").flush()
	s = w.state("silent", -1)
	require.Equal(t, []string{"b"}, w.requests("silent", -1))
	require.False(t, s.Whole)
	require.Equal(t, s.Turns[0].Place-1, s.Boundary)
	require.Equal(t, session.Counts{Finalized: 2, ShownFinalized: 1}, s.Counts)
}

func erased(t *testing.T, open Open) {
	w := newWorld(t, open)
	w.turn("s", "a").link("s", "me").start("s", "b").flush()
	w.erase("s").flush()
	s := w.state("s", -1)
	require.Equal(t, uint64(5), s.Erased)
	require.True(t, w.now.Equal(s.ErasedAt))
	require.Empty(t, s.Turns)
	w.answer("s", "b").start("s", "c").erase("s").flush()
	require.Empty(t, w.state("s", -1).Turns)
	require.Equal(t, uint64(5), w.state("s", -1).Erased)
	w.erase("never seen").flush()
	require.NotZero(t, w.state("never seen", -1).Erased)
}

func anomalies(t *testing.T, open Open) {
	w := newWorld(t, open)
	w.turn("s", "a").flush()
	before := Plain(w.state("s", -1)).(map[string]any)
	w.start("s", "a").answer("s", "a").answer("s", "never started")
	w.add(&events.LinkRefused{SessionID: "s", IdentityID: "x"})
	w.log.AppendEnvelope(events.Envelope{Subject: events.SessionSubject("s"), Body: []byte("{")}, w.now)
	w.log.AppendEnvelope(events.Envelope{Subject: "turns.0.foreign", Body: []byte("{}")}, w.now)
	w.add(&events.IdentityErased{IdentityID: "me", ReceiptID: "receipt"}).answer("only anomalies", "a").flush()
	after := Plain(w.state("s", -1)).(map[string]any)
	require.Equal(t, uint64(7), after["applied"], "the state has seen them")
	before["applied"] = after["applied"]
	require.Equal(t, before, after)
	require.Nil(t, w.load("only anomalies", -1).State)
	require.Equal(t, uint64(10), w.load("s", -1).Applied.Seq)
}

func exact(t *testing.T, open Open) {
	w := newWorld(t, open)
	const session = "séance {1} 日本 \U0001F9E1"
	question, answer, metadata := `[ {"role" : "user", "content":[{"type":"text","text":"\ud83d\ude00 <b>&amp;\u2028\u0000"}],  "n":123456789012345678901234567890.10, "e":1E400, "z":-0.0} ]`,
		`[{"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{\"a\":1.0}"}}]}]`, ` { "locale" : "de\u00e9" , "n" : 1e2 }`
	text := "tab\t \"quoted\" \u2028 \u202eRTL \x00 \U0001F468\u200d\U0001F469\u200d\U0001F467 " + strings.Repeat("ü",
		3000)
	body := func(f events.Fact, old, raw string) events.Envelope {
		env := must.Get(events.Encode(f, w.now))(t)
		env.Body = []byte(strings.Replace(string(env.Body), old, raw, 1))
		return env
	}
	f := &events.TurnStarted{TurnID: ID(session, "r"), SessionID: session, RequestID: "r", Question: events.Question{
		QuestionNeutral: text, QuestionTranslated: text, PipelineName: "p", Consultant: "c", Repository: "r",
		TranslateChat:    true,
		QuestionMessages: []byte(`["MESSAGES"]`), Metadata: []byte(`{}`),
	}}
	w.log.AppendEnvelope(body(f, `["MESSAGES"],"metadata":{}`, question+`,"metadata":`+metadata), w.now)
	w.log.AppendEnvelope(body(&events.TurnFinalized{TurnID: f.TurnID, SessionID: session, Metadata: []byte(`{"a":0}`),
		Answer: events.Answer{
			AnswerNeutral: text, AnswerTranslated: text + "!", AnswerTranslatedIsFallback: true,
			AnswerMessages: []byte(`["MESSAGES"]`),
		}}, `["MESSAGES"]`, answer), w.now)
	w.flush()
	got := w.state(session, -1)
	require.Equal(t, Plain(w.log.State(session)), Plain(got))
	turn := got.Turns[0]
	require.Equal(t, question, string(turn.Question.QuestionMessages))
	require.Equal(t, strings.TrimSpace(metadata), string(turn.Question.Metadata))
	require.Equal(t, answer, string(turn.Answer.AnswerMessages))
	require.Equal(t, text, turn.Question.QuestionNeutral)
}

func deliveredAgain(t *testing.T, open Open) {
	w := newWorld(t, open)
	w.turn("s", "a", "b").correct("s", "a", "a2").start("s", "c").turn("o", "x").redact("s", "b").answer("s",
		"c").erase("o")
	for n := range len(w.log.Events) {
		w.feed.redeliver(uint64(n), 1)
		require.Equal(t, uint64(n+1), w.load("s", -1).Applied.Seq)
		for _, s := range []string{"s", "o"} {
			want := newReference(s, rules, limits, time.Now())
			for _, e := range w.log.Events[:n+1] {
				if e.SessionID == s {
					want.apply(e)
				}
			}
			require.Equal(t, Plain(want.load(-1)), Plain(w.load(s, -1).State), "after event %d", n+1)
		}
	}
	// After a restart a tail may deliver events again in the middle of a batch.
	w.start("s", "d").add(&events.LinkRefused{SessionID: "s", IdentityID: "x"})
	n := len(w.log.Events)
	twice := w.feed.judged(append(slices.Clone(w.log.Events[n-2:]), w.log.Events[:n-1]...))
	twice.To.Seq = uint64(n)
	w.feed.Apply(twice)
	want := newReference("s", rules, limits, time.Now())
	for _, e := range w.log.Events {
		if e.SessionID == "s" {
			want.apply(e)
		}
	}
	require.Equal(t, Plain(want.load(-1)), Plain(w.load("s", -1).State))

	first := w.log.Events[:3]
	b := (&Feed{t: t, log: w.log, judge: projections.NewJudge(w.log, rules, 0),
		At: projections.Checkpoint{Epoch: w.feed.At.Epoch}}).judged(first)
	require.ErrorIs(t, w.view.Apply(t.Context(), b), projections.ErrFenced, "the checkpoint is further on")
}

func fenced(t *testing.T, open Open) {
	w := newWorld(t, open)
	ctx := t.Context()
	w.turn("s", "a", "b", "c")
	old := w.feed
	old.Apply(old.Batch(2))
	rival := NewFeed(t, w.log, w.view, 0)
	require.Equal(t, old.At.Seq, rival.At.Seq)
	require.Equal(t, "turnledger.turn.finalized.v1", w.log.Events[rival.At.Seq-1].Type)
	require.Equal(t, old.At.EventID, rival.At.EventID)
	require.Greater(t, rival.At.Epoch, old.At.Epoch)
	require.ErrorIs(t, w.view.Apply(ctx, old.Batch(2)), projections.ErrFenced)
	late := old.Batch(1)
	late.Events, late.Parked = nil, late.Events
	require.ErrorIs(t, w.view.Apply(ctx, late), projections.ErrFenced)
	require.Equal(t, []string{"a"}, w.requests("s", -1))
	rival.All(2)
	require.ErrorIs(t, w.view.Apply(ctx, old.Batch(2)), projections.ErrFenced)
	require.Equal(t, []string{"a", "b", "c"}, w.requests("s", -1))

	unclaimed := rival.Batch(0)
	unclaimed.From.Partition, unclaimed.To.Partition = 1, 1
	require.ErrorIs(t, w.view.Apply(ctx, unclaimed), projections.ErrFenced)
}

// crash starts a new runner after each batch. Each finds the checkpoint of the runner before, with stream and event id.
func crash(t *testing.T, open Open) {
	w := newWorld(t, open)
	created := time.Now().Add(-time.Hour).Round(0).UTC()
	w.turn("s", "a", "b").start("s", "c").redact("s", "a").correct("s", "b", "b2").answer("s", "c")
	for n := range len(w.log.Events) {
		b := w.feed.Batch(1)
		b.To.Created = created
		w.feed.Apply(b)
		w.feed.Claim(0)
		require.Equal(t, uint64(n+1), w.feed.At.Seq)
		require.Equal(t, w.log.Events[n].ID, w.feed.At.EventID)
		require.True(t, created.Equal(w.feed.At.Created))
	}
	require.Equal(t, []string{"b2", "c"}, w.requests("s", -1))
}

func begunLater(t *testing.T, open Open) {
	w := newWorld(t, open)
	w.turn("old", "a").start("old", "b").turn("gone", "a")
	w.feed = NewFeed(t, w.log, w.view, uint64(len(w.log.Events)))
	w.answer("old", "b").turn("old", "c").correct("old", "a", "a2").turn("new", "a").flush()
	require.Equal(t, []string{"c"}, w.requests("old", -1))
	require.False(t, w.state("old", -1).Whole)
	require.Equal(t, 3, w.state("old", -1).Finalized, "the head is that of the whole session")
	require.True(t, w.state("new", -1).Whole)
	require.Nil(t, w.load("gone", -1).State)
}

func waiting(t *testing.T, open Open) {
	w := newWorld(t, open)
	view := w.view
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, view.Wait(short, events.Position{Seq: 1}), context.DeadlineExceeded)

	long, cancel := context.WithTimeout(t.Context(), hang.Limit)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- view.Wait(long, events.Position{Seq: 3}) }()
	w.start("s", "a", "b", "c").flush()
	require.NoError(t, <-done)
	require.NoError(t, view.Wait(long, events.Position{Seq: 2}))
	require.Error(t, must.Err(w.view.Load(short, "s", 0, 1)), "a read ends with its ctx")
}

// concurrent reads a session while it grows. A snapshot must have all that its position says, and no half of a turn.
func concurrent(t *testing.T, open Open) {
	w := newWorld(t, open)
	const turns = 1000
	for i := range turns {
		w.turn("s", fmt.Sprint(i))
	}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	problems := make(chan string, 8)
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if p := inconsistent(t.Context(), w.view); p != "" {
					problems <- p
					return
				}
			}
		})
	}
	w.feed.All(400)
	close(stop)
	readers.Wait()
	select {
	case p := <-problems:
		t.Fatal(p)
	default:
	}
	require.Equal(t, fmt.Sprint(turns-1), w.requests("s", 1)[0])
}

// inconsistent returns what is wrong with a snapshot of a session in which the events 2i+1 and 2i+2 are turn i.
func inconsistent(ctx context.Context, view recent.Loader) string {
	snap, err := view.Load(ctx, "s", 0, -1)
	if err != nil {
		return err.Error()
	}
	if snap.State == nil || snap.Applied.Seq == 0 {
		return ""
	}
	last := snap.State.Turns[len(snap.State.Turns)-1]
	want, pending := (snap.Applied.Seq-1)/2, snap.Applied.Seq%2 == 1
	if last.RequestID != fmt.Sprint(want) || (last.Answer == nil) != pending || snap.State.Applied != snap.Applied.Seq {
		return fmt.Sprintf("turn %s answered at %d is the newest at %d", last.RequestID, last.Final, snap.Applied.Seq)
	}
	return ""
}

// queue is a backend's dead letters.
func (w *world) queue() *desk.Queue { return w.feed.Desk.Queue(w.view, w.log, rules) }

func (w *world) letters() []projections.DeadLetter {
	w.t.Helper()
	return must.Get(w.queue().DeadLetters(w.t.Context()))(w.t)
}

func parked(t *testing.T, open Open) {
	w := newWorld(t, open)
	w.turn("s", "a").turn("other", "x").start("s", "b")
	w.feed.Apply(w.feed.Batch(4))
	w.feed.Park()
	require.Nil(t, w.load("s", -1).State, "the log must be asked")
	require.Equal(t, uint64(5), w.load("s", -1).Applied.Seq)
	require.Equal(t, []string{"x"}, w.requests("other", -1))
	got := w.letters()
	require.Len(t, got, 1)
	require.WithinDuration(t, time.Now(), got[0].ParkedAt, time.Minute)
	e := w.log.Events[4]
	require.Equal(t, projections.DeadLetter{
		Projection: w.view.Name(), Position: e.Position, EventID: e.ID, Type: e.Type, SessionID: "s", Reason: "a test",
		Attempts: 1, ParkedAt: got[0].ParkedAt,
	}, got[0])
	w.answer("s", "b").turn("s", "c").flush()
	require.Equal(t, []string{"c"}, w.requests("s", -1))
	require.False(t, w.state("s", -1).Whole)
}

func retried(t *testing.T, open Open) {
	w := newWorld(t, open)
	w.turn("s", "a", "b").start("s", "c").turn("other", "x")
	w.feed.Apply(w.feed.Batch(2))
	w.feed.Park()
	w.feed.All(1)
	must.Fail(w.queue().RetryDeadLetter(t.Context(), events.Position{Seq: 2}))(t, projections.ErrNoDeadLetter)
	require.True(t, must.Get(w.queue().RetryDeadLetter(t.Context(), events.Position{Seq: 3}))(t).Applied)
	require.Empty(t, w.letters())
	require.Equal(t, []string{"a", "b", "c?"}, w.requests("s", -1))
	require.Equal(t, Plain(w.log.State("s")), Plain(w.state("s", -1)))
	// Later events are folded on top.
	w.answer("s", "c").redact("s", "a").turn("s", "d").flush()
	require.Equal(t, []string{"b", "c", "d"}, w.requests("s", -1))
	require.Equal(t, []string{"x"}, w.requests("other", -1))
}

func dropped(t *testing.T, open Open) {
	w := newWorld(t, open)
	w.turn("s", "a", "b")
	w.feed.Park()
	w.feed.All(1)
	q, at := w.queue(), events.Position{Seq: 1}
	drop := projections.Drop{Reason: "a test said so", By: "me", At: time.Now().UTC()}
	must.Fail(q.DropDeadLetter(t.Context(), events.Position{Seq: 2}, drop))(t, projections.ErrNoDeadLetter)
	letter := must.Get(q.DropDeadLetter(t.Context(), at, drop))(t)
	require.Equal(t, &drop, letter.Dropped)
	require.Equal(t, []projections.DeadLetter{letter}, w.letters(), "it is not lost")
	require.True(t, must.Get(q.RetryDeadLetter(t.Context(), at))(t).Applied)
	require.Empty(t, w.letters())
	require.Equal(t, []string{"a", "b"}, w.requests("s", -1))
}

// overtaken makes the view apply and park more of the session between the fold and the restore of a retry. Then the
// folded session is outdated, and the view must refuse it.
func overtaken(t *testing.T, open Open) {
	w := newWorld(t, open)
	restore := func(upTo uint64) bool {
		s := projections.Session{ID: "s", UpTo: upTo, State: session.New("s", rules)}
		for e, err := range w.log.Session(t.Context(), "s", 0, upTo) {
			require.NoError(t, err)
			s.State.Fold(e)
		}
		for _, l := range w.letters() {
			if l.Position.Seq <= upTo {
				s.Letters = append(s.Letters, l.Position)
			}
		}
		settled := must.Get(w.view.Restore(t.Context(), s))(t)
		require.Contains(t, [][]events.Position{nil, s.Letters}, settled)
		return settled != nil
	}
	w.turn("s", "a", "b", "c")
	w.feed.Park()
	w.load("s", -1)
	w.feed.Apply(w.feed.Batch(1))
	for name, s := range map[string]uint64{"it went on": 1, "it is not there yet": 3} {
		require.False(t, restore(s), name)
	}
	require.Len(t, w.letters(), 1)
	w.feed.Park()
	require.False(t, restore(2), "more was parked")
	require.Len(t, w.letters(), 2)
	require.True(t, restore(3))
	for range w.letters() {
		require.Equal(t, []string{"a", "b?"}, w.requests("s", -1), "the session is whole again")
	}
	require.True(t, must.Get(w.queue().RetryDeadLetter(t.Context(), w.letters()[0].Position))(t).Applied)
	require.Empty(t, w.letters(), "all of the session are settled")
	require.Equal(t, []string{"a", "b?"}, w.requests("s", -1))
}

// retry settles a dead letter, if there is one.
func (d *delivery) retry() {
	q := d.feed.Desk.Queue(d.view, d.log, rules)
	letters := must.Get(q.DeadLetters(d.rt.Context()))(d.rt)
	if len(letters) == 0 {
		return
	}
	letter := rapid.SampledFrom(letters).Draw(d.rt, "letter")
	if r := d.want[letter.SessionID]; r != nil {
		r.restored()
	}
	require.True(d.rt, must.Get(q.RetryDeadLetter(d.rt.Context(), letter.Position))(d.rt).Applied)
}
