package index_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/indextest"
	"github.com/turnledger/turnledger/projections/index"
)

// wentBack opens a view that went back, as a claim does. again has it come to where it was.
func wentBack(
	t *testing.T, w *world, change ...func(*index.Config),
) (v *index.View, again func(context.Context) error) {
	t.Helper()
	v = w.Open(t, change...)
	w.Append(t, indextest.Linked("s", "ann"))
	for n := range 20 {
		w.Append(t, indextest.Turn("s", strconv.Itoa(n), "a question", "an answer")...)
	}
	w.claim(t, v, "s").must(t)
	h := w.claim(t, v, "s")
	require.Less(t, h.At.Seq, uint64(30), "it went back")
	run := h.next(t)
	return v, func(ctx context.Context) error { return h.Apply(ctx, run) }
}

// verifiedBehind: a view that went back is compared once it has come to where it was.
func verifiedBehind(t *testing.T, w *world) {
	v, again := wentBack(t, w)
	applied := make(chan error, 1)
	time.AfterFunc(4*time.Second, func() { applied <- again(t.Context()) }) // longer than all rounds
	require.Empty(t, w.Differences(t, v))
	require.NoError(t, <-applied)
}

// verifiedOnceMore: a view that writes between a comparison and the look whether it is behind is compared once more.
func verifiedOnceMore(t *testing.T, w *world) {
	var compared atomic.Int64
	store := &spied{Objects: w.Store.Objects}
	v, again := wentBack(t, w, func(c *index.Config) { c.Store.Objects = store })
	store.found = func(ctx context.Context) {
		if compared.Add(1) == 6 { // no round is left but for a view that is behind
			require.NoError(t, again(ctx))
		}
	}
	require.Empty(t, w.Differences(t, v))
	require.Equal(t, int64(7), compared.Load())
}
