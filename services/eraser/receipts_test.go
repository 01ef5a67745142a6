package eraser_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/eraser"
)

// The list has each redaction and erasure of all partitions once, the newest first, whatever the size of a page, and
// says of each what its own receipt says.
func TestReceiptsAreListedNewestFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	receipts := w.receipts()
	pages := func(limit int) (ids []string, all []services.Receipt) {
		for ask := (services.ReceiptsAsk{Limit: limit}); ; {
			page := must.Get(receipts.Receipts(t.Context(), ask))(t)
			require.LessOrEqual(t, len(page.Receipts), limit)
			for _, r := range page.Receipts {
				ids = append(ids, r.ID)
			}
			all = append(all, page.Receipts...)
			if ask.Cursor = page.NextCursor; ask.Cursor == "" {
				return ids, all
			}
		}
	}
	none, _ := pages(10)
	require.Empty(t, none)
	var want []string
	for i := range 12 {
		session := fmt.Sprint("s", i)
		turn := w.turn(session, "r", "text")
		switch i % 3 {
		case 0:
			want = append(want, w.redact(session, turn).Position.String())
		case 1:
			id := must.Get(w.history.EraseSession(t.Context(), session, services.Erasure{}))(t)
			want = append(want, id)
		default:
			w.link(session, session)
			id := must.Get(w.history.EraseIdentity(t.Context(), session, services.Erasure{}))(t)
			want = append(want, id)
		}
	}
	slices.Reverse(want)
	for _, limit := range []int{1, 5, 100} {
		ids, all := pages(limit)
		require.Equal(t, want, ids, limit)
		for _, r := range all {
			require.Equal(t, w.receipt(r.ID), r)
		}
	}
	must.Fail(receipts.Receipts(t.Context(), services.ReceiptsAsk{Limit: 1, Cursor: "x"}))(t, decide.ErrInvalid)
}

// scanned is a log that counts how often it is read as a whole.
type scanned struct {
	Log
	n atomic.Int64
}

func (l *scanned) Tail(ctx context.Context, partition int, after uint64,
	opts jetlog.TailOptions) (*jetlog.Tail, error) {
	l.n.Add(1)
	return l.Log.Tail(ctx, partition, after, opts)
}

// The eraser knows an identity's sessions from the index of owners, also in its next life; where its own progress was
// lost it looks at the log again.
func TestTheSessionsOfAnIdentityAreKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	log := &scanned{Log: inOnePiece(w.log)}
	members := 0
	write := func(life string) {
		for i := range 30 {
			session := fmt.Sprint(life, " ", i)
			w.turn(session, "r1", "KEPT")
			switch i % 6 {
			case 0:
				w.turn(session, "r2", "SECRET")
				w.link(session, "alice")
				members++
			case 1:
				w.link(session, "bob")
			}
		}
		// One that is gone already has a receipt of its own.
		w.link(life+" gone", "alice")
		must.Get(w.history.EraseSession(t.Context(), life+" gone", services.Erasure{}))(t)
		members++
	}
	// looked waits until the eraser has seen all that was written.
	looked := func(life string) {
		w.redact("seen "+life, w.turn("seen "+life, "r1", "text"))
		w.left("seen "+life, events.TypeTurnRedacted)
	}
	write("first")
	stop := w.erase(log, eraser.Config{Rate: 10_000})
	looked("first")
	stop()
	begins := func() uint64 {
		at, err := eraser.New(on(inOnePiece(w.log)), w.notes, eraser.Config{Rules: rules}).Resume(t.Context(), 0)
		require.NoError(t, err)
		return at.Seq
	}
	require.Greater(t, begins(), uint64(60), "what the first life looked at is written down")
	write("second")
	stop = w.erase(log, eraser.Config{Rate: 10_000})
	write("third")
	looked("third")

	erase := func(identity string) {
		w.complete(must.Get(w.history.EraseIdentity(t.Context(), identity, services.Erasure{Reason: "asked to"}))(t))
	}
	before := log.n.Load()
	erase("alice")
	require.Equal(t, before, log.n.Load(), "nobody reads the whole log")
	require.Empty(t, holding(t, w.dir, "SECRET"))
	require.Equal(t, members, w.closed("alice"))
	require.Zero(t, w.closed("bob"))
	stop()

	// The progress is lost, or was not written down by a process that was killed.
	require.NoError(t, w.notes.Drop(t.Context(), "eraser.at.0"))
	require.Zero(t, begins())
	stop = w.erase(log, eraser.Config{Rate: 10_000})
	looked("fourth")
	before = log.n.Load()
	erase("bob")
	require.Equal(t, before, log.n.Load())
	require.Equal(t, 15, w.closed("bob"))
	stop()
}

// closed counts the sessions of an identity that are erased with it, or were before.
func (w *world) closed(identity string) (n int) {
	w.Helper()
	for _, life := range []string{"first", "second", "third"} {
		sessions := []string{life + " gone"}
		for i := range 30 {
			sessions = append(sessions, fmt.Sprint(life, " ", i))
		}
		for _, session := range sessions {
			if s := w.state(session); s.Identity == identity && s.Erased != 0 {
				n++
			}
		}
	}
	return n
}
