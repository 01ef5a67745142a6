package index_test

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/indextest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
)

// canaryOf returns the canary of a partition: an object without a session.
func (w *world) canaryOf(t testing.TB, partition int) index.Object {
	t.Helper()
	for _, o := range must.Get(w.Store.Page(t.Context(), w.only(t).Name, uuid.Nil, 100))(t) {
		if o.Session == "" && o.Partition == partition && o.StartSeq > 0 {
			return o
		}
	}
	t.Fatal("the store has no canary")
	return index.Object{}
}

// claimsGoBack: what a host may have lost with its last two minutes is written again, however many batches there were.
func claimsGoBack(t *testing.T, w *world) {
	now := newClock()
	v := w.Open(t, now.set)
	w.Append(t, indextest.Linked("s", "ann"))
	h := w.claim(t, v, "s")
	var ends []uint64
	batch := func(after time.Duration) {
		now.pass(after)
		w.Append(t, turntest.Turn("s", fmt.Sprint(len(ends)), fmt.Sprint("question ", len(ends)), "yes")...)
		h.must(t)
		ends = append(ends, h.At.Seq)
	}
	for range 5 {
		batch(time.Minute)
	}
	for range 6 {
		batch(time.Second)
	}
	h = w.claim(t, v, "s")
	require.Equal(t, ends[2], h.At.Seq, "the newest batch that is two minutes older than the last one")
	require.Equal(t, ends[2], must.Get(v.Applied(t.Context(), h.partition))(t).Seq)
	h.must(t)
	w.Agree(t, v, "s")

	batch(5 * time.Minute)
	batch(5 * time.Minute)
	canary := w.canaryOf(t, h.partition)
	canary.StartSeq = ends[len(ends)-3]
	require.NoError(t, w.Store.Put(t.Context(), w.only(t).Name, []index.Object{canary}))
	h = w.claim(t, v, "s")
	require.LessOrEqual(t, h.At.Seq, canary.StartSeq, "the store is an older copy")
	h.must(t)
	w.Agree(t, v, "s")
}

// goneStaysGone: a claim that goes back brings nothing back that it finds deleted further on in the log.
func goneStaysGone(t *testing.T, w *world) {
	v, store := w.spy(t)
	w.Append(t, annAsks("what goes", "yes")...)
	w.Append(t, turntest.Turn("s", "2", "what stays", "yes")...)
	w.claim(t, v, "s").must(t)
	w.Append(t, redacted("1"))
	w.Append(t, turntest.Turn("s", "3", "what stays as well", "yes")...)
	w.claim(t, v, "s").must(t)
	w.claim(t, v, "s") // and is taken over before it has applied anything
	h := w.claim(t, v, "s")
	require.Zero(t, h.At.Seq)
	brought := map[string]bool{}
	store.put = func(objects []index.Object) error {
		for _, o := range objects {
			brought[o.ID.String()] = brought[o.ID.String()] || o.Session != ""
		}
		return nil
	}
	for _, e := range h.next(t) {
		require.NoError(t, h.Apply(t.Context(), []projections.Judged{e}))
	}
	require.True(t, brought[id("s", "2")])
	require.True(t, brought[id("s", "3")])
	require.False(t, brought[id("s", "1")])
	store.put = nil
	w.Agree(t, v, "s")
}

// takenOver: a runner that was taken over changes nothing any more, and no batch is applied twice.
func takenOver(t *testing.T, w *world) {
	v, store := w.spy(t)
	w.Append(t, annAsks("the first question", "yes")...)
	former := w.claim(t, v, "s")
	before := *former
	former.must(t)
	require.ErrorIs(t, before.reach(t), projections.ErrFenced, "it is applied")
	other := w.Open(t)
	taking := w.claim(t, other, "s")
	w.Append(t, turntest.Turn("s", "2", "the second question", "yes")...)
	store.put = func([]index.Object) error {
		t.Error("it writes")
		return nil
	}
	require.ErrorIs(t, former.reach(t), projections.ErrFenced)
	store.put = nil
	require.Nil(t, w.object(t, "s", "2"))
	taking.must(t)
	require.NotNil(t, w.object(t, "s", "2"))
	late := index.Object{
		ID: uuid.New(), Session: "s", Partition: taking.partition, CreatedAt: time.Now(),
		Written: index.Written{Seq: taking.At.Seq + 1}, // late by the floors of both
	}
	require.NoError(t, w.Store.Put(t.Context(), w.only(t).Name, []index.Object{late}))
	require.NoError(t, v.Sweep(t.Context()))
	found := must.Get(w.Store.ByID(t.Context(), w.only(t).Name, []uuid.UUID{late.ID}, index.WithoutVectors))(t)
	require.Len(t, found, 1, "it does not sweep any more")
	require.NoError(t, other.Sweep(t.Context()))
	w.Agree(t, other, "s")
}

// takenOverInBatch: a runner that is taken over while it applies a batch moves no checkpoint. Its canary is not that of
// the other runner, which therefore claims again.
func takenOverInBatch(t *testing.T, w *world) {
	v, store := w.spy(t)
	other := w.Open(t)
	w.Append(t, annAsks("a question", "yes")...)
	h := w.claim(t, v, "s")
	var taking *hand
	store.put = func(objects []index.Object) error {
		if objects[0].Session == "" {
			taking = w.claim(t, other, "s")
		}
		return nil
	}
	require.ErrorIs(t, h.reach(t), projections.ErrFenced)
	require.Zero(t, must.Get(other.Served(t.Context()))(t).Of(h.partition).Seq)
	w.Append(t, redacted("1"))
	require.ErrorIs(t, taking.reach(t), projections.ErrUnavailable)
	w.claim(t, other, "s").must(t)
	w.Agree(t, other, "s")
}

// lostMeanwhile: a store that lost its canary may have lost objects. So the claim ends, and the view is as far as the
// store.
func lostMeanwhile(t *testing.T, w *world) {
	v := w.openWithTurn(t)
	h := w.claim(t, v, "s").must(t)
	lost := w.canaryOf(t, h.partition).ID
	require.NoError(t, w.Store.Delete(t.Context(), w.only(t).Name, []uuid.UUID{lost}, 1<<30))
	require.Zero(t, must.Get(v.Applied(t.Context(), h.partition))(t).Seq)
	w.Append(t, turntest.Turn("s", "2", "the second question", "yes")...)
	require.ErrorIs(t, h.reach(t), projections.ErrUnavailable)
	h = w.claim(t, v, "s")
	require.Zero(t, h.At.Seq)
	h.must(t)
	w.Agree(t, v, "s")
}

// writtenAgain: an object that a former runner may have written is deleted before it is written again, since a store
// that broke off in between may have it without its vectors. The vectors are not made anew.
func writtenAgain(t *testing.T, w *world) {
	v, store := w.spy(t)
	var done []string
	store.put = func(objects []index.Object) error {
		if objects[0].Session == "" {
			return nil
		}
		done = append(done, "put "+objects[0].ID.String())
		return nil
	}
	store.delete = func(ids []uuid.UUID, _ uint64) error {
		for _, id := range ids {
			done = append(done, "delete "+id.String())
		}
		return nil
	}
	w.Append(t, annAsks("a question", "an answer")...)
	h := w.claim(t, v, "s")
	put := store.put
	store.put = func(objects []index.Object) error {
		if objects[0].Session == "" {
			return errLost // the canary, and so no checkpoint
		}
		return put(objects)
	}
	require.ErrorIs(t, h.reach(t), projections.ErrUnavailable)
	store.put = put
	texts := w.Endpoint.Texts()
	for _, why := range []string{"a batch without a checkpoint", "before the mark that the claim went back to"} {
		done = nil
		h = w.claim(t, v, "s")
		require.Zero(t, h.At.Seq)
		h.must(t)
		require.Equal(t, []string{"delete " + id("s", "1"), "put " + id("s", "1")}, done, why)
	}
	require.Equal(t, texts, w.Endpoint.Texts())
	done = nil
	w.Append(t, turntest.Turn("s", "2", "another question", "yes")...)
	h.must(t)
	w.Agree(t, v, "s")
}

// lateDeletion: a deletion of a runner that was taken over leaves what the later runner has written.
func lateDeletion(t *testing.T, w *world) {
	v, store := w.spy(t)
	w.Append(t, annAsks("a question", "an answer")...)
	w.claim(t, v, "s").must(t)
	h := w.claim(t, v, "s")
	var late []uuid.UUID
	var epoch uint64
	store.delete = func(ids []uuid.UUID, upTo uint64) error {
		late, epoch = ids, upTo
		return errLost
	}
	require.ErrorIs(t, h.reach(t), projections.ErrUnavailable)
	require.NotEmpty(t, late)
	taking := w.Open(t)
	w.claim(t, taking, "s").must(t)
	require.NoError(t, w.Store.Delete(t.Context(), w.only(t).Name, late, epoch))
	w.Agree(t, taking, "s")
}

// manyTakeovers: late writes of any former runner are found, not only of the last one.
func manyTakeovers(t *testing.T, w *world) {
	now := newClock()
	v := w.Open(t, now.set)
	w.Append(t, indextest.Linked("s", "ann"))
	var late []index.Object
	for i := range 8 {
		h := w.claim(t, v, "s")
		began := h.At
		for k := range 3 { // so that the next claim goes back to the second one
			now.pass(3 * time.Minute)
			w.Append(t, turntest.Turn("s", fmt.Sprint(i, "-", k), fmt.Sprint("question ", i), "yes")...)
			h.must(t)
		}
		late = append(late, index.Object{
			ID: uuid.New(), Session: "s", Partition: h.partition, StartSeq: h.At.Seq, CreatedAt: now.read(),
			Written: index.Written{Epoch: began.Epoch, Seq: h.At.Seq + 1}, // of a batch that has no checkpoint
		})
	}
	require.NoError(t, w.Store.Put(t.Context(), w.only(t).Name, late[:len(late)-1]))
	require.NoError(t, v.Sweep(t.Context()))
	w.Agree(t, v, "s")
}

// wentBack opens a view that went back, as a claim does. again has it come to where it was.
func wentBack(
	t *testing.T, w *world, change ...func(*index.Config),
) (v *index.View, again func(context.Context) error) {
	t.Helper()
	v = w.Open(t, change...)
	w.Append(t, indextest.Linked("s", "ann"))
	for n := range 20 {
		w.Append(t, turntest.Turn("s", strconv.Itoa(n), "a question", "an answer")...)
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
