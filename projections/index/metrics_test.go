package index_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/indextest"
	"github.com/turnledger/turnledger/projections/index"
)

// Vectors are counted by how they came, sweeps by their result and by what they have put right.
func TestTheIndexCountsItsWork(t *testing.T) {
	t.Parallel()
	s := indextest.NewMemory()
	w := &world{indextest.NewWorld(t, s.Store(), 1)}
	reg, now := prometheus.NewRegistry(), newClock()
	v := w.fed(t, func(c *index.Config) { c.Registry, c.Now = reg, now.read })
	vectors := func(how string) float64 { return indextest.Counted(t, reg, "turnledger_index_vectors_total", how) }
	swept := func(what string) float64 { return indextest.Counted(t, reg, "turnledger_index_swept_total", what) }
	sweeps := func(result string) float64 { return indextest.Counted(t, reg, "turnledger_index_sweeps_total", result) }
	w.Append(t, annAsks("a question", "an answer")...)
	w.CaughtUp(t, v)
	require.EqualValues(t, 2, vectors("made"))
	w.Rebuild(t, v)
	w.CaughtUp(t, v)
	require.EqualValues(t, 2, vectors("made"), "a rebuild makes none anew")
	require.GreaterOrEqual(t, vectors("taken over"), 2.0)

	w.Endpoint.Fail(http.StatusBadRequest)
	w.Append(t, indextest.Turn("s", "2", "a bare question", "a bare answer")...)
	w.CaughtUp(t, v)
	require.EqualValues(t, 2, vectors("made"))
	w.Endpoint.Fail(0)
	require.NoError(t, w.Store.Create(t.Context(), index.Collection{Name: index.Prefix + "old_000000", Mark: "left"}))
	now.pass(time.Minute) // the embedder is left alone for a while
	require.NoError(t, v.Sweep(t.Context()))
	require.EqualValues(t, 1, swept("missing vector"))
	require.EqualValues(t, 4, vectors("made"))
	require.EqualValues(t, 1, swept("collection"))
	require.Positive(t, sweeps("done"))
	require.Zero(t, sweeps("failed"))
	s.Away()
	require.Error(t, v.Sweep(t.Context()))
	require.EqualValues(t, 1, sweeps("failed"))
}
