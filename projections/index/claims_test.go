package index_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
)

// claimsGoOn: a claim begins at the checkpoint.
func claimsGoOn(t *testing.T, w *world) {
	v := w.openWithTurn(t)
	h := w.claim(t, v, "s").must(t)
	require.Equal(t, h.At.Seq, w.claim(t, w.Open(t), "s").At.Seq)
	require.Equal(t, h.At.Seq, must.Get(v.Applied(t.Context(), h.partition))(t).Seq)
}

// settledAt returns how far the deletions of a partition are final.
func settledAt(t testing.TB, v *index.View, partition int) uint64 {
	t.Helper()
	return must.Get(v.Settled(t.Context(), partition))(t).Seq
}

// stoppedInUpsert: a runner is stopped in mid-upsert, another takes over, and a redaction passes. Then the upsert
// comes.
// No receipt says that the text is gone before a pass that began when no such request can come any more.
func stoppedInUpsert(t *testing.T, w *world) {
	now := newClock()
	store := &spied{Objects: w.Store.Objects}
	slow := w.Open(t, now.set, func(c *index.Config) { c.Store.Objects = store })
	w.Append(t, annAsks("what goes", "yes")...)
	var late []index.Object
	store.put = func(objects []index.Object) error {
		late = objects
		return errLost
	}
	require.ErrorIs(t, w.claim(t, slow, "s").reach(t), projections.ErrUnavailable)
	require.NotEmpty(t, late)
	taking := w.Open(t, now.set)
	h := w.claim(t, taking, "s").must(t)
	redaction := w.Append(t, redacted("1"))
	h.must(t)
	require.Nil(t, w.object(t, "s", "1"))
	require.NoError(t, taking.Sweep(t.Context()))
	require.Less(t, settledAt(t, taking, h.partition), redaction.Seq, "the upsert may still come")
	require.NoError(t, w.Store.Put(t.Context(), w.only(t).Name, late))
	require.NotNil(t, w.object(t, "s", "1"))
	now.pass(2 * time.Minute)
	require.Less(t, settledAt(t, taking, h.partition), redaction.Seq, "nobody has looked")
	require.NoError(t, taking.Sweep(t.Context()))
	require.GreaterOrEqual(t, settledAt(t, taking, h.partition), redaction.Seq)
	require.Nil(t, w.object(t, "s", "1"))
	w.Agree(t, taking, "s")
}

// olderCopy: a store that was put back to a copy lacks turns, and has some of which the text is gone.
func olderCopy(t *testing.T, w *world) {
	v := w.Open(t)
	w.Append(t, annAsks("what goes", "yes")...)
	h := w.claim(t, v, "s").must(t)
	copied := w.object(t, "s", "1")
	w.Append(t, redacted("1"))
	w.Append(t, turntest.Turn("s", "2", "what is lost", "yes")...)
	w.Append(t, turntest.Turn("s", "3", "what is of before", "yes")...)
	h.must(t)
	name, of := w.only(t).Name, w.object(t, "s", "3")
	of.Version++
	require.NoError(t, w.Store.Put(t.Context(), name, []index.Object{*copied, *of}))
	require.NoError(t, w.Store.Delete(t.Context(), name, []uuid.UUID{events.TurnID("s", "2")}))
	require.Len(t, w.Differences(t, v), 3)
	texts := w.Endpoint.Texts()
	require.NoError(t, v.Sweep(t.Context()))
	w.Agree(t, v, "s")
	require.Equal(t, texts+2, w.Endpoint.Texts(), "the texts of the turn that was lost")
}

// missedOnce: a retention deletes the turns of an anonymous session before they leave the log. A sweep in between does
// not bring them back.
func missedOnce(t *testing.T, w *world) {
	v := w.Open(t, anonymous)
	at := w.Append(t, turntest.Turn("s", "1", "an anonymous question", "yes")...)
	w.claim(t, v, "s").must(t)
	require.NoError(t, v.Sweep(t.Context()))
	require.NoError(t, v.Forget(t.Context(), "s", at))
	require.NoError(t, v.Sweep(t.Context()))
	require.Nil(t, w.object(t, "s", "1"))
	require.NoError(t, v.Sweep(t.Context()))
	require.NotNil(t, w.object(t, "s", "1"), "the log has it all the same")
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
	}
	require.NoError(t, w.Store.Put(t.Context(), w.only(t).Name, []index.Object{late}))
	require.NoError(t, v.Sweep(t.Context()))
	found := must.Get(w.Store.ByID(t.Context(), w.only(t).Name, []uuid.UUID{late.ID}, index.WithoutVectors))(t)
	require.Len(t, found, 1, "it does not sweep any more")
	require.NoError(t, other.Sweep(t.Context()))
	w.Agree(t, other, "s")
}

// takenOverInBatch: a runner that is taken over while it applies a batch moves no checkpoint.
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
	taking.must(t)
	w.Agree(t, other, "s")
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
	store.delete = func(ids []uuid.UUID) error {
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
			return errLost // the probe, and so no checkpoint
		}
		return put(objects)
	}
	require.ErrorIs(t, h.reach(t), projections.ErrUnavailable)
	store.put = put
	texts := w.Endpoint.Texts()
	done = nil
	h = w.claim(t, v, "s")
	require.Zero(t, h.At.Seq)
	h.must(t)
	require.Equal(t, []string{"delete " + id("s", "1"), "put " + id("s", "1")}, done, "a batch without a checkpoint")
	require.Equal(t, texts, w.Endpoint.Texts())
	done = nil
	w.Append(t, turntest.Turn("s", "2", "another question", "yes")...)
	h.must(t)
	w.Agree(t, v, "s")
}

// lateDeletion: what a late deletion of a runner that was taken over takes away, a sweep writes again.
func lateDeletion(t *testing.T, w *world) {
	v := w.openWithTurn(t)
	w.claim(t, v, "s").must(t)
	require.NoError(t, w.Store.Delete(t.Context(), w.only(t).Name, []uuid.UUID{events.TurnID("s", "1")}))
	require.NoError(t, v.Sweep(t.Context()))
	w.Agree(t, v, "s")
}
