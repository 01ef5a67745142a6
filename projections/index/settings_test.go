package index_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/embeddingstest"
	"github.com/turnledger/turnledger/deploy/testkit/indextest"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
)

func anonymous(c *index.Config) { c.Anonymous = true }

func withoutTexts(c *index.Config) { c.WithoutTexts = true }

// opened opens a view, and returns what it says at that.
func (w *world) opened(t testing.TB, setting ...func(*index.Config)) (*index.View, string) {
	t.Helper()
	var said bytes.Buffer
	v := w.Open(t, append(setting, func(c *index.Config) { c.Logger = slog.New(slog.NewTextHandler(&said, nil)) })...)
	return v, said.String()
}

// refusesAcross: a view answers no search across identities, and those of one identity as before.
func (w *world) refusesAcross(t testing.TB, v *index.View) {
	t.Helper()
	_, _, err := v.Nearest(t.Context(), "", indextest.Near("a question"))
	require.ErrorIs(t, err, projections.ErrSomeAnonymous)
	require.ErrorIs(t, err, projections.ErrUnavailable)
	require.Equal(t, []string{id("s", "1")}, w.Found(t, v, "a question", "ann"))
	require.ErrorIs(t, v.Outdated(t.Context()), projections.ErrSomeAnonymous)
}

// changedAnonymous: an index that processes have fed by both settings holds some anonymous turns and lacks others. Its
// feeders say so at their start, and no process searches across identities, until a rebuild: to set the former setting
// again mends nothing.
func changedAnonymous(t *testing.T, w *world) {
	const saying = "TURNLEDGER_INDEX_ANONYMOUS was changed"
	linked, said := w.opened(t)
	require.NotContains(t, said, saying)
	w.Append(t, annAsks("a question of Ann", "yes")...)
	w.Append(t, indextest.Turn("nobody", "1", "a question of nobody", "yes")...)
	feed := func(v *index.View) {
		for _, session := range []string{"s", "nobody"} {
			w.claim(t, v, session).must(t)
		}
	}
	feed(linked)
	require.Equal(t, []string{id("s", "1")}, w.Found(t, linked, "a question", ""))

	all, said := w.opened(t, anonymous)
	require.Contains(t, said, saying)
	for _, v := range []*index.View{all, linked} {
		w.refusesAcross(t, v)
	}
	linked, said = w.opened(t)
	require.Contains(t, said, saying)
	w.refusesAcross(t, linked)
	w.Rebuild(t, all)
	for _, v := range []*index.View{all, linked} {
		require.ElementsMatch(t, []string{id("s", "1"), id("nobody", "1")}, w.Found(t, v, "a question", ""))
	}
	feed(all)
	all, said = w.opened(t, anonymous)
	require.NotContains(t, said, saying)
	require.Len(t, w.Found(t, all, "a question", ""), 2)

	feed(linked) // which has not begun anew since the rebuild
	for _, v := range []*index.View{all, linked} {
		w.refusesAcross(t, v)
	}
	w.Rebuild(t, linked)
	for _, v := range []*index.View{all, linked} {
		require.Equal(t, []string{id("s", "1")}, w.Found(t, v, "a question", ""))
	}
	require.NoError(t, linked.Outdated(t.Context()))
	require.Empty(t, w.Differences(t, linked))
}

// changedTexts: an index with texts of some turns says so until a rebuild. Searches need no texts, and go on.
func changedTexts(t *testing.T, w *world) {
	const saying = "TURNLEDGER_INDEX_TEXT was changed"
	v, said := w.opened(t)
	require.NotContains(t, said, saying)
	w.Append(t, annAsks("a question of Ann", "yes")...)
	w.claim(t, v, "s").must(t)
	without, said := w.opened(t, withoutTexts)
	require.Contains(t, said, saying)
	require.ErrorIs(t, without.Outdated(t.Context()), projections.ErrSomeTexts)
	require.Len(t, w.Found(t, without, "a question", ""), 1)
	_, said = w.opened(t)
	require.Contains(t, said, saying)
	w.Rebuild(t, without)
	_, said = w.opened(t)
	require.Contains(t, said, saying, "the rebuild left all texts out")
	w.Rebuild(t, without)
	without, said = w.opened(t, withoutTexts)
	require.NotContains(t, said, saying)
	require.NoError(t, without.Outdated(t.Context()))
}

// otherLengthAtRest: a sweep finds out that the embedder makes vectors of another length than the index has, while
// nothing is written. It asks the embedder once a minute.
func otherLengthAtRest(t *testing.T, w *world) {
	now := newClock()
	v := w.Open(t, func(c *index.Config) {
		c.Now, c.Embedder = now.read, w.Embedder("hash", 0)
	})
	sweep := func(want error) {
		t.Helper()
		require.NoError(t, v.Sweep(t.Context()))
		require.ErrorIs(t, v.Outdated(t.Context()), want)
	}
	sweep(nil) // there is no vector
	w.Append(t, annAsks("a question", "yes")...)
	w.claim(t, v, "s").must(t)
	now.pass(time.Minute)
	sweep(nil)
	w.Endpoint.Answer(embeddingstest.Dimensions / 2)
	calls := w.Endpoint.Calls()
	sweep(nil)
	require.Equal(t, calls, w.Endpoint.Calls())
	now.pass(time.Minute)
	sweep(projections.ErrOtherModel)
	w.Endpoint.Fail(http.StatusBadRequest)
	now.pass(time.Minute)
	sweep(projections.ErrOtherModel) // nothing else is known
	w.Endpoint.Fail(0)
	w.Rebuild(t, v)
	require.NoError(t, v.Outdated(t.Context()))
	now.pass(time.Minute)
	sweep(nil)
	w.Endpoint.Answer(0)
	now.pass(time.Minute)
	sweep(projections.ErrOtherModel)
	w.Endpoint.Answer(embeddingstest.Dimensions / 2)
	now.pass(time.Minute)
	sweep(nil) // it was a confusion
}
