package index_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/indextest"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
)

// forgotten: turns of an anonymous session that a retention takes out of the log leave the index before, and a rebuild
// for their bytes is due. No rebuild may be filling a generation meanwhile.
func forgotten(t *testing.T, w *world) {
	linked := w.Open(t)
	w.Append(t, indextest.Linked("kept", "ann"))
	kept := w.Append(t, indextest.Turn("kept", "1", "a question of Ann's", "yes")...)
	w.claim(t, linked, "kept").must(t)
	require.NoError(t, linked.Forget(t.Context(), "kept", kept), "an index of linked sessions has none")
	require.NotNil(t, w.object(t, "kept", "1"))
	v := w.Open(t, func(c *index.Config) { c.Anonymous = true })
	w.Append(t, indextest.Turn("s", "1", "an anonymous question", "yes")...)
	at := w.Append(t, indextest.Turn("s", "2", "another one", "no")...)
	w.Append(t, indextest.Turn("other", "1", "a question of another", "no")...)
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
