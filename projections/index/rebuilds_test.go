package index_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/embeddingstest"
	"github.com/turnledger/turnledger/deploy/testkit/indextest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
)

func generation(t testing.TB, v *index.View) projections.Generation {
	t.Helper()
	return must.Get(v.NewGeneration(t.Context()))(t)
}

func served(t testing.TB, v *index.View) uint64 {
	t.Helper()
	return must.Get(v.Served(t.Context()))(t).Generation
}

// swaps: a swap waits until the new generation is as far as the former one, and fences the former one's runners. The
// next claim begins at its end.
func swaps(t *testing.T, w *world) {
	v := w.openWithTurn(t)
	former := w.claim(t, v, "s")
	former.must(t)
	was := served(t, v)
	g := generation(t, w.Open(t))
	require.ErrorIs(t, g.Swap(t.Context(), projections.ReachFormer), projections.ErrNotCaughtUp, "it has nothing")
	next := w.claim(t, g, "s")
	former = w.claim(t, v, "s")
	former.must(t)
	require.ErrorIs(t, g.Swap(t.Context(), projections.ReachFormer), projections.ErrNotCaughtUp, "it is behind")
	require.Equal(t, was, served(t, v))
	w.Append(t, turntest.Turn("s", "2", "the second question", "yes")...)
	require.ErrorIs(t, former.reach(t), projections.ErrFenced, "a swap has closed the claim")
	next.must(t)
	require.NoError(t, g.Swap(t.Context(), projections.ReachFormer))
	require.Equal(t, g.Number(), served(t, v))
	require.ErrorIs(t, former.reach(t), projections.ErrFenced)
	require.NoError(t, g.Drop(t.Context()))
	require.Equal(t, next.At.Seq, w.claim(t, v, "s").At.Seq)
	page := must.Get(w.Store.Page(t.Context(), index.Alias, uuid.Nil, 10))(t)
	require.NotEmpty(t, page, "readers from outside have the new generation")
	w.Agree(t, v, "s")
}

// claimsDuringSwap: a runner that claims a partition while a swap has closed it makes the swap begin again, so that
// what the runner applies is not lost.
func claimsDuringSwap(t *testing.T, w *world) {
	notes := &interrupted{Notes: w.Notes, call: "commit index.served"}
	v := w.Open(t, func(c *index.Config) { c.Notes = notes })
	w.Append(t, annAsks("the first question", "yes")...)
	former := w.claim(t, v, "s")
	former.must(t)
	g := generation(t, v)
	next := w.claim(t, g, "s")
	next.must(t)
	other := w.Open(t)
	notes.once = func() { former = w.claim(t, other, "s") }
	require.ErrorIs(t, g.Swap(t.Context(), projections.ReachFormer), projections.ErrNotCaughtUp)
	w.Append(t, turntest.Turn("s", "2", "the second question", "yes")...)
	former.must(t)
	require.ErrorIs(t, g.Swap(t.Context(), projections.ReachFormer), projections.ErrNotCaughtUp)
	next.must(t)
	require.NoError(t, g.Swap(t.Context(), projections.ReachFormer))
	require.NoError(t, g.Drop(t.Context()))
	w.Agree(t, v, "s")
}

// claimsAfterSwap: a runner that has read which generation is served, and claims it only after a swap, is fenced.
func claimsAfterSwap(t *testing.T, w *world) {
	v := w.openWithTurn(t)
	h := w.claim(t, v, "s").must(t)
	g := generation(t, v)
	w.claim(t, g, "s").must(t)
	notes := &interrupted{Notes: w.Notes, call: "read index.claim."}
	slow := w.Open(t, func(c *index.Config) { c.Notes = notes })
	notes.once = func() { require.NoError(t, g.Swap(t.Context(), projections.ReachFormer)) }
	must.Fail(slow.Claim(t.Context(), h.partition))(t, projections.ErrFenced)
	require.NoError(t, g.Drop(t.Context()))
	w.Agree(t, v, "s")
}

// abandoned: of two rebuilds only the later one may swap. What a rebuild has left behind is dropped by the next, and
// one that is given up leaves nothing.
func abandoned(t *testing.T, w *world) {
	v := w.openWithTurn(t)
	w.claim(t, v, "s").must(t)
	was := w.only(t)
	first := generation(t, v)
	w.claim(t, first, "s").must(t)
	second := generation(t, w.Open(t))
	require.Greater(t, second.Number(), first.Number())
	require.Len(t, w.collections(t), 2, "the first one's is dropped")
	require.ErrorIs(t, first.Swap(t.Context(), projections.ReachFormer), projections.ErrFenced)
	require.NoError(t, second.Drop(t.Context()))
	require.Equal(t, was, w.only(t))
	third := generation(t, v)
	require.Greater(t, third.Number(), second.Number(), "no number is used twice")
	require.NoError(t, third.Drop(t.Context()))
	w.Agree(t, v, "s")
}

// lostWhileFilled: what a generation's store has lost while it was filled, a sweep writes again.
func lostWhileFilled(t *testing.T, w *world) {
	v := w.openWithTurn(t)
	w.claim(t, v, "s").must(t)
	g := generation(t, v)
	w.claim(t, g, "s").must(t)
	for _, name := range w.collections(t) {
		require.NoError(t, w.Store.Delete(t.Context(), name, []uuid.UUID{events.TurnID("s", "1")}))
	}
	require.NoError(t, g.Swap(t.Context(), projections.ReachFormer))
	require.NoError(t, g.Drop(t.Context()))
	w.claim(t, v, "s")
	require.NoError(t, v.Sweep(t.Context()))
	w.Agree(t, v, "s")
}

// sweptBesideRebuild: a sweep leaves the generation alone that a rebuild fills, and drops an older one, until when no
// receipt says that the files are clean.
func sweptBesideRebuild(t *testing.T, w *world) {
	var forgotten atomic.Uint64
	forgotten.Store(7)
	v := w.Open(t, erasedUpTo(&forgotten))
	w.Append(t, annAsks("the first question", "yes")...)
	w.claim(t, v, "s").must(t)
	at := w.only(t)
	files := func() uint64 { return must.Get(v.Files(t.Context(), 0))(t).Seq }
	require.EqualValues(t, 7, files())
	older := index.Collection{
		Name: strings.TrimSuffix(at.Name, "1") + "0", Mark: strings.TrimSuffix(at.Mark, "1") + "0",
	}
	require.NoError(t, w.Store.Create(t.Context(), older))
	require.Zero(t, files(), "an older generation is left")
	g := generation(t, w.Open(t))
	require.NotContains(t, w.collections(t), older.Name)
	require.NoError(t, w.Store.Create(t.Context(), older))
	for _, name := range w.collections(t) {
		if name > at.Name {
			require.NoError(t, w.Store.Serve(t.Context(), name))
		}
	}
	require.NoError(t, v.Sweep(t.Context()))
	require.NotEmpty(t, must.Get(w.Store.Page(t.Context(), index.Alias, uuid.Nil, 10))(t), "the alias is put right")
	require.Len(t, w.collections(t), 2)
	require.NotContains(t, w.collections(t), older.Name)
	require.NoError(t, g.Drop(t.Context()))
	require.EqualValues(t, 7, files())
}

// otherModel: vectors of two models are never mixed nor compared, and a rebuild makes all anew.
func otherModel(t *testing.T, w *world) {
	v := w.openWithTurn(t)
	w.claim(t, v, "s").must(t)
	changed := func(c *index.Config) { c.Embedder = w.Embedder("other", indextest.Dimensions) }
	other := w.Open(t, changed)
	texts := w.Endpoint.Texts()
	w.Append(t, turntest.Turn("s", "2", "the second question", "no")...)
	w.claim(t, other, "s").must(t)
	require.NoError(t, other.Sweep(t.Context()))
	require.Equal(t, texts, w.Endpoint.Texts())
	require.Nil(t, w.object(t, "s", "2").Question.Vector)
	near := indextest.Near("question")
	_, _, err := other.Nearest(t.Context(), "", near)
	require.ErrorIs(t, err, projections.ErrOtherModel)
	require.ErrorIs(t, err, projections.ErrUnavailable)
	w.Rebuild(t, other)
	require.Equal(t, texts+4, w.Endpoint.Texts(), "all texts of both turns")
	require.Len(t, w.Found(t, other, "question", "ann"), 2)
	require.Empty(t, w.Differences(t, other))
	_, _, err = v.Nearest(t.Context(), "", near)
	require.ErrorIs(t, err, projections.ErrOtherModel, "and the former one is asked no more")
}

// otherDimensions: an endpoint whose vectors have another length than before costs no turn. Searches say what to run,
// and a rebuild makes all vectors anew.
func otherDimensions(t *testing.T, w *world) {
	plain := func(c *index.Config) { c.Embedder = w.Embedder("hash", 0) }
	const now = embeddingstest.Dimensions / 2
	v := w.Open(t, plain)
	w.Append(t, annAsks("the first question", "yes")...)
	h := w.claim(t, v, "s").must(t)
	w.Endpoint.Answer(now)
	w.Append(t, turntest.Turn("s", "2", "the second question", "no")...)
	h.must(t)
	require.Nil(t, w.object(t, "s", "2").Question.Vector)
	near := index.Near{Vector: embeddingstest.Vector("question", now), Limit: 10}
	_, _, err := v.Nearest(t.Context(), "", near)
	require.ErrorIs(t, err, projections.ErrOtherModel)
	require.ErrorIs(t, err, projections.ErrUnavailable)

	w.Endpoint.Answer(0)
	v = w.Open(t, plain)
	w.claim(t, v, "s").must(t)
	require.NoError(t, v.Sweep(t.Context()))
	require.Len(t, w.object(t, "s", "2").Question.Vector, embeddingstest.Dimensions, "it was a confusion")

	w.Endpoint.Answer(now)
	w.Append(t, turntest.Turn("s", "3", "the third question", "no")...)
	w.claim(t, v, "s").must(t)
	w.Rebuild(t, v)
	hits, _ := must.Two(v.Nearest(t.Context(), "", near))(t)
	require.Len(t, hits, 3)
	require.Empty(t, w.Differences(t, v))
}

// begunInVain: a process that was killed, or got no answer, between making a collection and naming it leaves one that
// was never served. That one holds nothing up.
func begunInVain(t *testing.T, w *world) {
	v := w.openWithTurn(t)
	w.claim(t, v, "s").must(t)
	require.NoError(t, w.Store.Drop(t.Context(), w.only(t).Name))
	cfg := w.Config()
	cfg.Store.Collections = &forgetful{Collections: w.Store.Collections}
	other := index.New(cfg)
	require.ErrorIs(t, other.Prepare(t.Context()), projections.ErrUnavailable)
	require.Len(t, w.collections(t), 1)
	require.NoError(t, other.Prepare(t.Context()))
	require.NoError(t, v.Sweep(t.Context()), "its claim is of the collection that is lost")
	w.claim(t, v, "s").must(t)
	require.NoError(t, v.Sweep(t.Context()))
	w.Agree(t, v, "s")
}

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
	w.Append(t, turntest.Turn("nobody", "1", "a question of nobody", "yes")...)
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
	v := w.Open(t, func(c *index.Config) { c.Now, c.Embedder = now.read, w.Embedder("hash", 0) })
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
