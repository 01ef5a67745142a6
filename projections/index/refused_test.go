package index_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/indextest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
)

// takenAtLast: an object that is refused for a while is tried again, and is no dead letter.
func takenAtLast(t *testing.T, w *world) {
	v, store := w.spy(t)
	tries := 0
	store.refuse = func(o *index.Object) bool {
		if o.Session != "" {
			tries++
		}
		return o.Session != "" && tries <= 3
	}
	w.Append(t, annAsks("a question", "yes")...)
	w.claim(t, v, "s").must(t)
	require.Equal(t, 4, tries)
	w.Agree(t, v, "s")
}

// takesNothing: a store that refuses all, or that has lost its collection and made another by itself, is waited for.
func takesNothing(t *testing.T, w *world) {
	v, store := w.spy(t)
	w.Append(t, annAsks("a question", "yes")...)
	h := w.claim(t, v, "s")
	for what, chosen := range map[string]func(*index.Object) bool{
		"all": func(*index.Object) bool { return true },
		"turns, in a collection that the store has made": func(o *index.Object) bool { return o.Session != "" },
	} {
		store.refuse = chosen
		if what != "all" {
			name := w.only(t).Name
			require.NoError(t, w.Store.Drop(t.Context(), name))
			require.NoError(t, w.Store.Create(t.Context(), index.Collection{Name: name, Mark: "made by a late write"}))
		}
		err := h.reach(t)
		require.ErrorIs(t, err, projections.ErrUnavailable, what)
		require.False(t, projections.IsPermanent(err), what)
	}
}

// refusedExtension: what a generation has of a turn goes when the store refuses what the turn is now.
func refusedExtension(t *testing.T, w *world) {
	v, store := w.spy(t)
	w.Append(t, annAsks("what is hot", "lava")...)
	g := generation(t, v)
	h := w.claim(t, g, "s").must(t)
	has := func() int {
		n := 0
		for _, name := range w.collections(t) {
			ids := []uuid.UUID{events.TurnID("s", "1")}
			n += len(must.Get(w.Store.ByID(t.Context(), name, ids, index.WithoutVectors))(t))
		}
		return n
	}
	require.Equal(t, 1, has())
	store.refuse = func(o *index.Object) bool { return strings.Contains(o.Answer.Neutral, "ash") }
	w.Append(t, extended("1", "and ash"))
	parked := 0
	h.Park = func(context.Context, projections.Batch, error) error {
		parked++
		return nil
	}
	h.must(t)
	require.Equal(t, 1, parked)
	require.Zero(t, has())
	require.NoError(t, g.Drop(t.Context()))
}

// scrubs looks every few milliseconds whether a rebuild for the files' sake is due, and tells of each.
func scrubs(t testing.TB, v *index.View) chan struct{} {
	t.Helper()
	due := make(chan struct{}, 1)
	natstest.Run(t, index.Scrub{View: v, After: 10 * time.Millisecond, Rebuild: func(context.Context) error {
		select {
		case due <- struct{}{}:
		default:
		}
		return nil
	}}.Run)
	return due
}

// parkedDeletions: what a parked event deletes is deleted, and is a reason to scrub; what it brings does not come.
func parkedDeletions(t *testing.T, w *world) {
	var forgotten atomic.Uint64
	v := w.Open(t, erasedUpTo(&forgotten))
	w.Append(t, annAsks("the wrong question", "yes")...)
	h := w.claim(t, v, "s").must(t)
	at := w.Append(t, corrected("1c", "1", "refused", "no"))
	run, to := h.next(t), h.At
	require.Len(t, run, 1)
	to.Seq, to.EventID = at.Seq, run[0].ID
	require.NoError(t, h.Commit(t.Context(), projections.Batch{From: h.At, To: to, Parked: run}))
	require.Nil(t, w.object(t, "s", "1"))
	require.Nil(t, w.object(t, "s", "1c"))
	forgotten.Store(at.Seq)
	<-scrubs(t, v)
}

// scrubbedByAge: a generation is replaced at a certain age, and not before.
func scrubbedByAge(t *testing.T, w *world) {
	now := newClock()
	var forgotten atomic.Uint64
	v := w.Open(t, now.set, erasedUpTo(&forgotten))
	w.Append(t, annAsks("what must go", "yes")...)
	at := w.Append(t, redacted("1"))
	w.claim(t, v, "s").must(t)
	forgotten.Store(at.Seq)
	rebuilds := scrubs(t, v)
	<-time.After(200 * time.Millisecond)
	require.Empty(t, rebuilds, "it has begun just now")
	now.pass(time.Second)
	<-rebuilds
}

// restored: a dead letter's session is written as the log has it up to the view's position, and not if the view has
// gone on meanwhile. A sweep finds no difference.
func restored(t *testing.T, w *world) {
	v := w.Open(t)
	w.Append(t, indextest.Linked("s", "ann"))
	at := w.Append(t, turntest.Turn("s", "1", "a question", "yes")...)
	h := w.claim(t, v, "s")
	run := h.next(t)
	session := func() projections.Session {
		return projections.Session{
			ID: "s", Partition: h.partition, UpTo: at.Seq, Letter: at, Letters: []events.Position{at},
			State: natstest.Fold(t, w.Log, "s", w.Rules), Events: run,
		}
	}
	s := session()
	settled := must.Get(v.Restore(t.Context(), s))(t)
	require.Empty(t, settled, "the view is not there yet")
	require.Nil(t, w.object(t, "s", "1"))
	h.must(t)
	require.NoError(t, w.Store.Delete(t.Context(), w.only(t).Name, []uuid.UUID{events.TurnID("s", "1")}))
	settled = must.Get(v.Restore(t.Context(), s))(t)
	require.Equal(t, []events.Position{at}, settled)
	require.NotNil(t, w.object(t, "s", "1"))
	require.NoError(t, v.Sweep(t.Context()))
	require.NotNil(t, w.object(t, "s", "1"))
	s = session()
	w.Append(t, redacted("1"))
	h.must(t)
	settled = must.Get(v.Restore(t.Context(), s))(t)
	require.Empty(t, settled, "it has gone on")
	require.Nil(t, w.object(t, "s", "1"))
}

// forgotten: turns of an anonymous session that a retention takes out of the log leave the index before, and a rebuild
// for their bytes is due. No rebuild may be filling a generation meanwhile.
func forgotten(t *testing.T, w *world) {
	linked := w.Open(t)
	w.Append(t, indextest.Linked("kept", "ann"))
	kept := w.Append(t, turntest.Turn("kept", "1", "a question of Ann's", "yes")...)
	w.claim(t, linked, "kept").must(t)
	require.NoError(t, linked.Forget(t.Context(), "kept", kept), "an index of linked sessions has none")
	require.NotNil(t, w.object(t, "kept", "1"))
	v := w.Open(t, func(c *index.Config) { c.Anonymous = true })
	w.Append(t, turntest.Turn("s", "1", "an anonymous question", "yes")...)
	at := w.Append(t, turntest.Turn("s", "2", "another one", "no")...)
	w.Append(t, turntest.Turn("other", "1", "a question of another", "no")...)
	h := w.claim(t, v, "s")
	for _, of := range []*index.View{v, linked} { // whatever the setting of the process that asks
		require.ErrorIs(t, of.Forget(t.Context(), "s", at), projections.ErrNotYet, "the view is not there yet")
	}
	h.must(t)
	w.claim(t, v, "other").must(t)
	require.NotNil(t, w.object(t, "s", "1"))
	g := generation(t, v)
	require.ErrorIs(t, v.Forget(t.Context(), "s", at), projections.ErrNotYet, "a rebuild may have read them")
	require.NoError(t, g.Drop(t.Context()))
	rebuilds := scrubs(t, v)
	<-time.After(200 * time.Millisecond)
	require.Empty(t, rebuilds)
	require.NoError(t, linked.Forget(t.Context(), "s", at))
	require.Nil(t, w.object(t, "s", "1"))
	require.Nil(t, w.object(t, "s", "2"))
	require.NotNil(t, w.object(t, "other", "1"))
	<-rebuilds
}
