package recenttest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
)

// queue is a backend's dead letters.
func (w *world) queue() *desk.Queue { return w.feed.Desk.Queue(w.view, w.log, rules) }

func (w *world) letters() []projections.DeadLetter {
	w.t.Helper()
	got := must.Get(w.queue().DeadLetters(w.t.Context()))(w.t)
	return got
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
		s := projections.Session{ID: "s", UpTo: upTo, State: conversation.New("s", rules)}
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
	done := must.Get(q.RetryDeadLetter(d.rt.Context(), letter.Position))(d.rt)
	require.True(d.rt, done.Applied)
}
