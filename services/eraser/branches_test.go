package eraser_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/eraser"
)

// inWorlds runs a test on a log of one partition, and on one of four.
func inWorlds(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	for _, n := range []int{1, 4} {
		t.Run(fmt.Sprint(n, " partitions"), func(t *testing.T) {
			t.Parallel()
			test(t, newWorld(t, n))
		})
	}
}

// tree makes a session "root" with a turn, its branch "b", and "of b", which is a branch of that one.
func (w *world) tree() {
	w.Helper()
	w.turn("root", "r1", "KEPT")
	w.fork("root", "b", uuid.Nil)
	w.fork("b", "of b", uuid.Nil)
}

// fork makes a branch that ends with a turn, or with the last finalized one.
func (w *world) fork(session, child string, turn uuid.UUID) {
	w.Helper()
	must.Get(w.history.ForkSession(w.Context(), decide.ForkSession{
		SessionID: session, RequestID: "fork " + child, ChildID: child, TurnID: turn}))(w)
}

// receipts tells of erasures, also of what views have done.
func (w *world) receipts(views ...eraser.Place) *eraser.Receipts {
	return eraser.NewReceipts(on(inOnePiece(w.log)), w.notes, views)
}

// asking tells what is known of an erasure by now, each time by the same receipts.
func (w *world) asking(id string, views ...eraser.Place) func() services.Receipt {
	receipts := w.receipts(views...)
	return func() services.Receipt {
		w.Helper()
		return must.Get(receipts.Receipt(w.Context(), id))(w)
	}
}

// receipt is what is known of an erasure by now.
func (w *world) receipt(id string, views ...eraser.Place) services.Receipt {
	w.Helper()
	return w.asking(id, views...)()
}

// complete waits until an erasure is complete.
func (w *world) complete(id string, views ...eraser.Place) (got services.Receipt) {
	w.Helper()
	receipt := w.asking(id, views...)
	hang.Until(w, func() bool { got = receipt(); return got.Complete() })
	return got
}

// die runs erasers that die one after the other: the first before its first step, the next just after it, and so on.
// Then one lives.
func (w *world) die(cfg eraser.Config, lives int) {
	w.Helper()
	cfg.Rate = 10_000
	for life := range lives {
		w.live(newMortal(inOnePiece(w.log), int64(life/2), life%2 == 1), cfg)
	}
	w.erase(inOnePiece(w.log), cfg)
}

// The receipt of a session counts what its branches lose: each branch and each turn once, at any depth; not what was
// redacted, replaced or came after the fork, and no branch that is erased. It is the same after kills at any step, and
// when the eraser has forgotten all and looks at the log anew.
func TestAReceiptCountsWhatBranchesLose(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		w.turn("root", "r1", "SECRET")
		second := w.turn("root", "r2", "SECRET")
		third := w.turn("root", "r3", "SECRET")
		fourth := w.turn("root", "r4", "SECRET")
		w.fork("root", "b", uuid.Nil)
		w.fork("b", "below b", second)
		w.fork("root", "erased", uuid.Nil)
		w.fork("erased", "below erased", uuid.Nil)
		w.turn("b", "own", "SECRET too")
		w.fork("b", "of b", uuid.Nil)
		w.turn("root", "r5", "SECRET")
		w.redact("root", third)
		w.correct("root", "c4", fourth, "SECRET")
		must.Get(w.history.EraseSession(t.Context(), "erased", services.Erasure{}))(t)

		id := must.Get(w.history.EraseSession(t.Context(), "root", services.Erasure{}))(t)
		require.Nil(t, w.receipt(id).Shared, "not counted yet")
		w.die(eraser.Config{}, 8)
		want := &services.SharedTurns{Branches: 4, Turns: 3}
		require.Equal(t, want, w.complete(id).Shared)

		for k := range w.log.Partitions() {
			require.NoError(t, w.notes.Drop(t.Context(), fmt.Sprint("eraser.at.", k)))
		}
		w.erase(inOnePiece(w.log), eraser.Config{Rate: 10_000})
		id = must.Get(w.history.EraseSession(t.Context(), "b", services.Erasure{}))(t)
		require.Equal(t, &services.SharedTurns{Branches: 1, Turns: 1}, w.complete(id).Shared, "its own turn")
		again := must.Get(w.history.EraseSession(t.Context(), "root", services.Erasure{}))(t)
		require.Equal(t, want, w.complete(again).Shared)
		require.Empty(t, holding(t, w.dir, "SECRET"))
	})
}

// A session without branches says so, and a redaction says nothing of branches.
func TestReceiptsWithoutBranches(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	turn := w.turn("s", "r1", "SECRET")
	w.redact("s", turn)
	redacted := w.state("s").Turn(turn).Redacted
	w.erase(inOnePiece(w.log), eraser.Config{})
	require.Nil(t, w.complete(fmt.Sprint("0:", redacted)).Shared)
	id := must.Get(w.history.EraseSession(t.Context(), "s", services.Erasure{}))(t)
	require.Equal(t, &services.SharedTurns{}, w.complete(id).Shared)
}

// An identity's erasure takes all branches of its sessions, wherever the tree was linked, also a branch whose process
// was slow and that begins when the identity is erased, or one that somebody else linked elsewhere; and also if the
// eraser dies at any step. Its receipt counts what the sessions shared.
func TestAnErasedIdentityTakesItsBranches(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		w.turn("root", "r1", "SECRET")
		w.turn("root", "r2", "SECRET")
		w.fork("root", "b", uuid.Nil)
		w.turn("b", "own", "SECRET too")
		w.fork("b", "of b", uuid.Nil)
		w.fork("root", "stray", uuid.Nil)
		w.publish(&events.SessionLinked{SessionID: "stray", IdentityID: "mallory"}, "")
		w.link("of b", "alice")
		w.turn("other", "r1", "KEPT")
		w.fork("other", "of other", uuid.Nil)
		slow := &events.SessionBranched{SessionID: "b", ChildSessionID: "slow", RequestID: "slow",
			At:            events.Position{Partition: events.Partition("b", w.log.Partitions()), Seq: 1},
			FromSessionID: "b", Root: "root"}
		w.publish(slow, "")
		slower := *slow
		slower.ChildSessionID, slower.RequestID = "slower", "slower"
		w.publish(&slower, "")
		id := must.Get(w.history.EraseIdentity(t.Context(), "alice", services.Erasure{}))(t)
		w.live(newMortal(inOnePiece(w.log), 3, false), eraser.Config{Rate: 10_000})
		w.publish(slow.Fork(), "")
		turn := events.TurnID("slow", "r1")
		w.publish(&events.TurnStarted{TurnID: turn, SessionID: "slow", RequestID: "r1",
			Question: events.Question{QuestionNeutral: "SECRET of the slow one"}}, "")
		w.die(eraser.Config{}, 10)
		require.Equal(t, &services.SharedTurns{Branches: 3, Turns: 3}, w.complete(id).Shared)
		w.publish(slower.Fork(), "")
		for _, s := range []string{"root", "b", "of b", "slow", "slower", "stray"} {
			hang.Until(t, func() bool { return w.state(s).Erased != 0 }, s)
		}
		w.gone("SECRET")
		require.Zero(t, w.state("of other").Erased)
		require.NotEmpty(t, holding(t, w.dir, "KEPT"))
	})
}

// A link on any branch links the root and all branches, also when an effect has to do it since the process that linked
// died; a link that is refused links nothing.
func TestALinkOnABranchLinksTheTree(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		w.tree()
		w.fork("root", "erased", uuid.Nil)
		w.fork("erased", "of erased", uuid.Nil)
		must.Get(w.history.EraseSession(t.Context(), "erased", services.Erasure{}))(t)
		stop := w.erase(inOnePiece(w.log), eraser.Config{Rate: 10_000}) // it looks at the forks before the link
		w.left("erased", events.TypeSessionBranched, events.TypeSessionErased, events.TypeErasureReceipt)
		stop()
		tree := []string{"root", "b", "of b", "of erased"}
		// As the history service leaves it, killed right after the root.
		w.publish(&events.SessionLinked{SessionID: "root", IdentityID: "alice"}, "")
		w.die(eraser.Config{}, 8)
		for _, s := range tree {
			hang.Until(t, func() bool { return w.state(s).Identity == "alice" }, s)
		}
		var before [][]string
		for _, s := range tree {
			before = append(before, w.types(s))
		}
		must.Fail(w.history.LinkSession(t.Context(), "of b", "bob", ""))(t, decide.ErrLinkedElsewhere)
		for i, s := range tree {
			now := w.types(s)
			require.Equal(t, before[i], now[:len(before[i])])
			require.NotContains(t, now[len(before[i]):], events.TypeSessionLinked, s)
			require.Equal(t, "alice", w.state(s).Identity)
		}
	})
}

// A foreign publisher's link on a branch links the root, where it is judged, and so the tree; but not the root of a
// session that is its branch only by the word of a foreign publisher. Where the root is linked already, it links no
// other session.
func TestAForeignLinkOnABranchLinksTheTree(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		linked []string // a session, and its identity
		of     []string // the identities of root, b, of b and c then
	}{
		{[]string{"of b", "bob"}, []string{"bob", "bob", "bob", "bob"}},
		{[]string{"b", "bob", "root", "alice"}, []string{"alice", "bob", "alice", "alice"}},
		{[]string{"thief", "bob"}, []string{"", "", "", ""}},
	} {
		t.Run(c.linked[0], func(t *testing.T) {
			t.Parallel()
			inWorlds(t, func(t *testing.T, w *world) {
				w.tree()
				w.fork("root", "c", uuid.Nil)
				w.publish(&events.SessionForked{SessionID: "thief", RequestID: "f", FromSessionID: "root",
					Root: "root"}, "")
				w.publish(&events.SessionBranched{SessionID: "of b", ChildSessionID: "b", RequestID: "in a circle",
					FromSessionID: "of b", Root: "root"}, "")
				stop := w.erase(inOnePiece(w.log), eraser.Config{Rate: 10_000})
				w.idle() // it has met the forks
				stop()
				for i := 0; i < len(c.linked); i += 2 {
					w.publish(&events.SessionLinked{SessionID: c.linked[i], IdentityID: c.linked[i+1]}, "")
				}
				w.die(eraser.Config{}, 8)
				identities := func() (out []string) {
					for _, s := range []string{"root", "b", "of b", "c"} {
						out = append(out, w.state(s).Identity)
					}
					return out
				}
				hang.Until(t, func() bool { return slices.Equal(c.of, identities()) })
				w.idle()
				require.Equal(t, c.of, identities())
			})
		})
	}
}

// Retention leaves an anonymous session alone while a branch of it lives, at any depth, and takes it when the last one
// is gone. A session with marks of branches that were never made is not held.
func TestABranchKeepsItsParentFromRetention(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		w.turn("root", "r1", "SECRET")
		w.fork("root", "b", uuid.Nil)
		w.fork("b", "of b", uuid.Nil)
		w.turn("marked", "r1", "SECRET")
		for _, child := range []string{"never", "of b"} { // the other is a branch of another root
			w.publish(&events.SessionBranched{SessionID: "marked", ChildSessionID: child, RequestID: "f " + child,
				FromSessionID: "marked", Root: "marked"}, "")
		}
		erase := func(session string) {
			must.Get(w.history.EraseSession(t.Context(), session, services.Erasure{}))(t)
		}
		cut := time.Now().Add(10 * time.Millisecond)
		hang.Until(t, func() bool { return time.Now().After(cut) })
		w.turn("of b", "own", "KEPT")
		r := eraser.NewRetention(on(inOnePiece(w.log)), w.notes, eraser.RetentionConfig{
			Rules: rules, Anonymous: time.Hour, Now: func() time.Time { return cut.Add(time.Hour) }})
		sweep := func() int { return must.Get(r.Sweep(t.Context()))(t).Sessions }
		require.Equal(t, 1, sweep())
		require.Empty(t, w.types("marked"))
		require.NotEmpty(t, w.types("root"))
		require.NotEmpty(t, w.types("b"))
		erase("b")
		require.Zero(t, sweep())
		require.NotEmpty(t, w.types("root"), "held by the branch of an erased branch")
		erase("of b")
		require.Equal(t, 1, sweep(), "nothing new is old: it is looked at again")
		require.Empty(t, w.types("root"))
	})
}

// A mark that is not its child's own changes nothing: the branch of another root stays with that root, whoever is
// linked, erased or swept first. Such a mark is left by a fork that lost a race, or was killed before its branch began;
// or a foreign publisher wrote it, here with the fork's own words.
func TestAMarkOfAnotherRootsBranchChangesNothing(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		w.turn("alice's", "r1", "SECRET of both")
		w.turn("bob's", "r1", "SECRET of both")
		w.fork("alice's", "x", uuid.Nil)
		w.turn("x", "own", "KEPT")
		w.fork("x", "of x", uuid.Nil)
		own := w.markOf("alice's")
		stolen := *own
		stolen.SessionID = "bob's"
		w.publish(&stolen, "")
		bobs := *own
		bobs.SessionID, bobs.FromSessionID, bobs.Root, bobs.RequestID = "bob's", "bob's", "bob's", "lost"
		bobs.Segments = slices.Clone(own.Segments)
		bobs.Segments[0].SessionID, bobs.Segments[0].ThroughTurnID = "bob's", events.TurnID("bob's", "r1")
		w.publish(&bobs, "")
		w.erase(inOnePiece(w.log), eraser.Config{Rate: 10_000})
		must.Get(w.history.LinkSession(t.Context(), "bob's", "bob", ""))(t)
		w.idle()
		require.Empty(t, w.state("x").Identity)
		id := must.Get(w.history.EraseIdentity(t.Context(), "bob", services.Erasure{}))(t)
		require.Equal(t, &services.SharedTurns{}, w.complete(id).Shared)
		must.Get(w.history.LinkSession(t.Context(), "alice's", "alice", ""))(t)
		w.idle()
		require.NotZero(t, w.state("bob's").Erased)
		for _, s := range []string{"alice's", "x", "of x"} {
			require.Zero(t, w.state(s).Erased, s)
			require.Equal(t, "alice", w.state(s).Identity, s)
		}
		id = must.Get(w.history.EraseIdentity(t.Context(), "alice", services.Erasure{}))(t)
		require.Equal(t, &services.SharedTurns{Branches: 2, Turns: 2}, w.complete(id).Shared)
		for _, s := range []string{"alice's", "x", "of x"} {
			require.NotZero(t, w.state(s).Erased, s)
		}
	})
}

// markOf returns the mark of a session's only branch.
func (w *world) markOf(session string) *events.SessionBranched {
	w.Helper()
	for e, err := range w.log.Session(w.Context(), session, 0, math.MaxUint64) {
		require.NoError(w, err)
		if f, ok := e.Fact.(*events.SessionBranched); ok {
			return f
		}
	}
	require.Fail(w, "the session has no mark")
	return nil
}
