package desk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/desk"
)

func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }

// desks are the one in the log's notes, and the one that ends with the process.
func desks(t *testing.T, test func(t *testing.T, d *desk.Desk, log *jetlog.Log)) {
	t.Parallel()
	for _, name := range []string{"notes", "memory"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := natstest.Log(t, 1)
			d := desk.Of(log)
			if name == "memory" {
				d = desk.InMemory()
			}
			test(t, d, log)
		})
	}
}

// source serves what a test says.
type source struct {
	serves  projections.Served
	refuses error
}

func (*source) Name() string { return "view" }

func (s *source) Restore(_ context.Context, x projections.Session) ([]events.Position, error) {
	return []events.Position{x.Letter}, s.refuses
}

// view is a source in the desk's terms.
type view struct{ *source }

func (v view) Served(context.Context) (projections.Served, error) { return v.serves, nil }

func claimed(seq, epoch uint64, store string) projections.Checkpoint {
	return projections.Checkpoint{Seq: seq, Epoch: epoch, Store: store, Generation: 1}
}

func serving(at projections.Checkpoint) view {
	return view{&source{serves: projections.Served{Store: at.Store, Generation: at.Generation,
		At: []projections.Checkpoint{at}}}}
}

func dead(seq uint64) projections.DeadLetter {
	return projections.DeadLetter{
		Projection: "view", Position: events.Position{Seq: seq}, EventID: fmt.Sprint("e", seq), Reason: "a test",
		Attempts: 1,
		ParkedAt: time.Unix(int64(seq), 0).UTC(),
	}
}

func listed(t *testing.T, d *desk.Desk, log *jetlog.Log, v view) (seqs []uint64) {
	t.Helper()
	for _, l := range must.Get(d.Queue(v, log, session.Rules{}).DeadLetters(t.Context()))(t) {
		seqs = append(seqs, l.Position.Seq)
	}
	return seqs
}

func own(t *testing.T, d *desk.Desk, cp projections.Checkpoint) *desk.Claim {
	t.Helper()
	return must.Get(d.ClaimLetters(t.Context(), "view", cp))(t)
}

// A letter counts once the checkpoint that passes its event stands. One whose owner never came to that goes when
// the next owner claims the partition, who applies the event itself.
func TestALetterCountsOnceTheCheckpointStands(t *testing.T) {
	desks(t, func(t *testing.T, d *desk.Desk, log *jetlog.Log) {
		h := own(t, d, claimed(3, 1, "a"))
		require.NoError(t, h.Keep(t.Context(), time.Time{}, dead(4)))
		require.Empty(t, listed(t, d, log, serving(claimed(3, 1, "a"))), "the checkpoint is not there")
		require.Equal(t, []uint64{4}, listed(t, d, log, serving(claimed(4, 1, "a"))))
		require.NoError(t, h.Keep(t.Context(), time.Time{}, dead(5)))

		own(t, d, claimed(4, 2, "a"))
		require.Equal(t, []uint64{4}, listed(t, d, log, serving(claimed(9, 2, "a"))), "the second owner has applied 5")
	})
}

// Whoever was fenced writes no letter any more, so that none stands of an event that the next owner applies.
func TestAFormerOwnerKeepsNoLetter(t *testing.T) {
	desks(t, func(t *testing.T, d *desk.Desk, log *jetlog.Log) {
		former := own(t, d, claimed(3, 1, "a"))
		now := own(t, d, claimed(3, 2, "a"))
		require.ErrorIs(t, former.Keep(t.Context(), time.Time{}, dead(4)), projections.ErrFenced)
		require.NoError(t, now.Keep(t.Context(), time.Time{}, dead(5)))
		require.Equal(t, []uint64{5}, listed(t, d, log, serving(claimed(9, 2, "a"))))
		_, err := d.ClaimLetters(t.Context(), "view", claimed(3, 1, "a"))
		require.ErrorIs(t, err, projections.ErrFenced, "an owner that claimed before, and comes late")
	})
}

// A view may bound its letters: the oldest go, also those that a former owner kept.
func TestLettersMayBeBounded(t *testing.T) {
	desks(t, func(t *testing.T, d *desk.Desk, log *jetlog.Log) {
		former := own(t, d, claimed(3, 1, "a"))
		for seq := range uint64(4) {
			require.NoError(t, former.Keep(t.Context(), time.Time{}, dead(4+seq)))
		}
		require.Equal(t, []uint64{4, 5, 6, 7}, listed(t, d, log, serving(claimed(7, 1, "a"))), "all are kept")
		h := own(t, d.Bounded(3), claimed(7, 2, "a"))
		for _, c := range []struct {
			keep uint64
			want []uint64
		}{{8, []uint64{6, 7, 8}}, {9, []uint64{7, 8, 9}}, {9, []uint64{7, 8, 9}}, {10, []uint64{8, 9, 10}}} {
			require.NoError(t, h.Keep(t.Context(), time.Time{}, dead(c.keep)))
			require.Equal(t, c.want, listed(t, d, log, serving(claimed(c.keep, 2, "a"))))
		}
		own(t, d, claimed(10, 3, "a"))
		require.ErrorIs(t, h.Keep(t.Context(), time.Time{}, dead(11)), projections.ErrFenced)
	})
}

// A desk in memory keeps the newest thousand letters.
func TestADeskInMemoryIsBounded(t *testing.T) {
	t.Parallel()
	d := desk.InMemory()
	h := own(t, d, claimed(3, 1, "a"))
	for n := range uint64(1200) {
		require.NoError(t, h.Keep(t.Context(), time.Time{}, dead(4+n)))
	}
	seqs := listed(t, d, nil, serving(claimed(2000, 1, "a")))
	require.Len(t, seqs, 1000)
	require.EqualValues(t, 1203, seqs[999])
}

// Two databases that follow one log are told apart, and so are generations of one.
func TestStoresAndGenerationsAreApart(t *testing.T) {
	desks(t, func(t *testing.T, d *desk.Desk, log *jetlog.Log) {
		next := claimed(3, 1, "a")
		next.Generation = 2
		for seq, cp := range map[uint64]projections.Checkpoint{4: claimed(3, 1, "a"), 5: claimed(3, 1, "b"), 6: next} {
			require.NoError(t, own(t, d, cp).Keep(t.Context(), time.Time{}, dead(seq)))
		}
		next.Seq = 9
		require.Equal(t, []uint64{4}, listed(t, d, log, serving(claimed(9, 1, "a"))))
		require.Equal(t, []uint64{5}, listed(t, d, log, serving(claimed(9, 1, "b"))))
		require.Equal(t, []uint64{6}, listed(t, d, log, serving(next)))
		require.NoError(t, d.Clear(t.Context(), "view", "a", 1))
		require.Empty(t, listed(t, d, log, serving(claimed(9, 1, "a"))))
		require.Equal(t, []uint64{6}, listed(t, d, log, serving(next)))
	})
}

// What an operator said of an event comes with the backup of the log, and counts until the view is rebuilt.
func TestRestoredLettersCountUntilTheViewIsRebuilt(t *testing.T) {
	desks(t, func(t *testing.T, d *desk.Desk, log *jetlog.Log) {
		at := natstest.Append(t, log, &events.SessionReset{SessionID: "s"})
		e, _ := must.Two(log.At(t.Context(), at))(t)
		known, other, beyond := dead(1), dead(1), dead(2)
		known.EventID, known.Dropped = projections.Label(e.ID), &projections.Drop{Reason: "a known lie"}
		other.Projection = "other"
		for range 2 {
			require.NoError(t, d.Restore(t.Context(), log, []projections.DeadLetter{known, other, beyond}))
		}
		cp := claimed(9, 1, "a")
		cp.Created = time.Unix(1, 0)
		v := serving(cp)
		require.Equal(t, []uint64{1}, listed(t, d, log, v))
		require.Equal(t, known.Dropped, must.Get(d.Queue(v, log, session.Rules{}).Dropped(t.Context(), at))(t))
		cp.Created = log.Created(0)
		require.Empty(t, listed(t, d, log, serving(cp)))
		require.Empty(t, listed(t, d, log, serving(claimed(0, 1, "b"))), "a view that has nothing yet")
	})
}

// A letter of a stream that was there before says nothing of the one that is.
func TestALetterOfAnotherStreamDoesNotCount(t *testing.T) {
	desks(t, func(t *testing.T, d *desk.Desk, log *jetlog.Log) {
		cp := claimed(3, 1, "a")
		cp.Created = log.Created(0)
		require.NoError(t, own(t, d, cp).Keep(t.Context(), time.Unix(1, 0), dead(4)))
		cp.Seq = 9
		require.Empty(t, listed(t, d, log, serving(cp)))
	})
}

func TestRetriedAndDropped(t *testing.T) {
	desks(t, func(t *testing.T, d *desk.Desk, log *jetlog.Log) {
		h := own(t, d, claimed(3, 1, "a"))
		for seq := range uint64(3) {
			require.NoError(t, h.Keep(t.Context(), time.Time{}, dead(4+seq)))
		}
		v := serving(claimed(9, 1, "a"))
		q := d.Queue(v, log, session.Rules{})
		at := func(seq uint64) events.Position { return events.Position{Seq: seq} }
		v.refuses = projections.Permanent(fmt.Errorf("still refused"))
		got := must.Get(q.RetryDeadLetter(t.Context(), at(4)))(t)
		require.False(t, got.Applied)
		require.Equal(t, "still refused 2", fmt.Sprint(got.Reason, " ", got.Attempts))
		v.refuses = nil
		got = must.Get(q.RetryDeadLetter(t.Context(), at(4)))(t)
		require.True(t, got.Applied)
		drop := projections.Drop{Reason: "a known lie", By: "ada", At: time.Unix(9, 0).UTC()}
		must.Get(q.DropDeadLetter(t.Context(), at(5), drop))(t)
		require.Equal(t, []uint64{5, 6}, listed(t, d, log, v))
		require.Equal(t, &drop, must.Get(q.Dropped(t.Context(), at(5)))(t))
		for _, gone := range []uint64{4, 7} {
			must.Fail(q.RetryDeadLetter(t.Context(), at(gone)))(t, projections.ErrNoDeadLetter)
		}
	})
}

// A member that died is removed: what it left would else be read with each beat, for ever.
func TestMembersThatDiedAreRemoved(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	notes := must.Get(log.Notes(t.Context()))(t)
	group := desk.New(notes).Members("view", nil)
	const alive = 20 * time.Millisecond
	for _, m := range []string{"dead", "me"} {
		must.Get(group.Beat(t.Context(), m, alive))(t)
	}
	hang.Until(t, func() bool {
		living := must.Get(group.Beat(t.Context(), "me", alive))(t)
		require.Contains(t, living, "me")
		kept := 0
		require.NoError(t, notes.Each(t.Context(), "members.view.*",
			func(jetlog.Note[json.RawMessage]) error { kept++; return nil }))
		return len(living) == 1 && kept == 1
	})
}

// One holder at a time; the next one may have what is released.
func TestALeaseHasOneHolder(t *testing.T) {
	desks(t, func(t *testing.T, d *desk.Desk, _ *jetlog.Log) {
		release := must.Get(d.Lease(t.Context(), "view", "a"))(t)
		must.Fail(d.Lease(t.Context(), "view", "a"))(t, projections.ErrRebuilding)
		other, err := d.Lease(t.Context(), "view", "b")
		require.NoError(t, err, "of another store")
		other(t.Context())
		release(t.Context())
		release = must.Get(d.Lease(t.Context(), "view", "a"))(t)
		release(t.Context())
	})
}
