package index_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/indextest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
)

// Two stores on one log don't fill each other anew: the index goes to the one that came last, and the processes of the
// other one say what is wrong, and leave what they have alone.
func TestTwoStoresOnOneLog(t *testing.T) {
	t.Parallel()
	first, second := indextest.NewMemory(), indextest.NewMemory()
	w := &world{indextest.NewWorld(t, first.Store(), 1)}
	v := w.fed(t)
	w.Append(t, annAsks("a question", "yes")...)
	w.CaughtUp(t, v)
	kept := must.Get(w.Store.List(t.Context()))(t)

	w.Store = second.Store()
	moved := w.Open(t)
	w.Feed(t, moved)
	w.Reached(t, moved)
	before := must.Get(moved.Served(t.Context()))(t)
	require.Error(t, v.Look(t.Context()))
	for range 10 {
		err := v.Sweep(t.Context())
		require.ErrorIs(t, err, projections.ErrUnavailable)
		require.ErrorContains(t, err, "all processes need the same TURNLEDGER_WEAVIATE_URL")
		require.ErrorContains(t, v.Prepare(t.Context()), "all processes need the same TURNLEDGER_WEAVIATE_URL")
		w.Append(t, indextest.Turn("s", "2", "another question", "yes")[0])
		<-time.After(50 * time.Millisecond) // the first runner tries again meanwhile
	}
	require.Equal(t, before.Generation, must.Get(moved.Served(t.Context()))(t).Generation)
	w.Agree(t, moved, "s")
	require.Equal(t, kept, must.Get(first.List(t.Context()))(t))
}

// Two logs on one store don't take each other's index away, which each would fill anew for good. The second says what
// is wrong, until its operator has it take the store over.
func TestTwoLogsOnOneStore(t *testing.T) {
	t.Parallel()
	s := indextest.NewMemory()
	w := &world{indextest.NewWorld(t, s.Store(), 1)}
	v := w.fed(t)
	w.Append(t, annAsks("a question", "yes")...)
	w.CaughtUp(t, v)

	other := indextest.NewWorld(t, s.Store(), 1)
	late := index.New(other.Config())
	for range 2 {
		err := late.Prepare(t.Context())
		require.ErrorIs(t, err, projections.ErrUnavailable)
		require.ErrorContains(t, err, "each log needs a Weaviate of its own")
		require.NoError(t, v.Sweep(t.Context()))
	}
	w.Agree(t, v, "s")

	other.Append(t, indextest.Linked("t", "bob"))
	other.Append(t, indextest.Turn("t", "1", "another question", "no")...)
	other.Rebuild(t, late)
	other.Feed(t, late)
	other.Reached(t, late)
	require.Error(t, v.Look(t.Context()))
	require.ErrorContains(t, v.Prepare(t.Context()), "each log needs a Weaviate of its own")
	require.Error(t, v.Sweep(t.Context()), "what it fed is gone")
	require.NoError(t, late.Sweep(t.Context()))
	other.Agree(t, late, "t")
	require.Zero(t, must.Get(late.Files(t.Context(), 0))(t).Seq, "nothing is known of what the log has forgotten")
}

// A store that was emptied, filled again and then put back to its older copy has an index of before: a rebuild brings
// the index back, and no rebuild begins by itself, since another store might have the index.
func TestAnOlderIndexIsRebuilt(t *testing.T) {
	t.Parallel()
	s := indextest.NewMemory()
	w := &world{indextest.NewWorld(t, s.Store(), 1)}
	var forgotten atomic.Uint64
	v := w.Open(t, erasedUpTo(&forgotten))
	w.Append(t, annAsks("a question", "yes")...)
	w.Append(t, indextest.Turn("s", "0", "what must go", "yes")...)
	stop := w.Feed(t, v)
	w.Reached(t, v)
	stop()
	s.Save()
	s.Empty()
	stop = w.Feed(t, v)
	w.Reached(t, v)
	gone := w.Append(t, redacted("0"))
	w.Reached(t, v)
	stop()
	s.Back()
	require.ErrorContains(t, v.Prepare(t.Context()), "run turnledger projections rebuild index")
	require.ErrorContains(t, v.Sweep(t.Context()), "run turnledger projections rebuild index")

	forgotten.Store(gone.Seq) // so that a rebuild by its age is due
	scrubbing, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.NoError(t, index.Scrub{View: v, After: 10 * time.Millisecond, Rebuild: func(context.Context) error {
		t.Error("a rebuild began by itself")
		return nil
	}}.Run(scrubbing))

	w.Rebuild(t, v)
	require.Len(t, w.Found(t, v, "a question", "ann"), 1)
	w.Append(t, indextest.Turn("s", "2", "another question", "yes")...)
	w.Feed(t, v)
	w.Reached(t, v)
	require.NoError(t, v.Sweep(t.Context()))
	w.Agree(t, v, "s")
}
