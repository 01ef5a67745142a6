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

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
)

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
