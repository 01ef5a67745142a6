package recenttest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

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
	require.Equal(t, conversation.Counts{Finalized: 2, ShownFinalized: 1}, s.Counts)
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
