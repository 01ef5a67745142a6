package audit_test

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
)

// identityLog has two identities with turns in several sessions, which take turns.
func identityLog() *journal {
	log := newJournal()
	log.add(started("s1", "before"), linked("s1", "u"), linked("s2", "u"), linked("s3", "other"))
	for i := range 5 {
		for _, s := range []string{"s1", "s2", "s3"} {
			log.add(started(s, fmt.Sprint("r", i)))
		}
	}
	for i := range 4 {
		log.add(finalized("s1", fmt.Sprint("r", i)))
	}
	log.add(corrected("s1", "r1b", "r1"))
	log.redact("s1", id("s1", "r2"))
	log.redact("s2", id("s2", "r0"))
	return log
}

func TestIdentityTurns(t *testing.T) {
	t.Parallel()
	log := identityLog()
	a := filled(t, log, 7)
	all := []string{"s1 before", "s1 r0", "s1 r1b", "s2 r1", "s2 r2", "s1 r3", "s2 r3", "s1 r4", "s2 r4"}

	// said returns a page of what an identity said.
	said := func(t *testing.T, identity string, since, until time.Time, limit int, cursor string) ([]string, string) {
		t.Helper()
		turns, _, next := must.Three(a.IdentityTurns(t.Context(), identity, since, until, limit, cursor))(t)
		return requestsOf(turns), next
	}

	t.Run("over all sessions, newest last, without redacted and replaced ones", func(t *testing.T) {
		t.Parallel()
		turns, _, next := must.Three(a.IdentityTurns(t.Context(), "u", time.Time{}, time.Time{}, 0, ""))(t)
		require.Empty(t, next)
		require.Equal(t, all, requestsOf(turns))
		for _, turn := range turns {
			require.Equal(t, "u", turn.IdentityID)
			sameTurn(t, log.state(turn.SessionID).Turn(turn.ID), &turn.Turn)
		}
	})
	t.Run("in pages of any size, each turn once", func(t *testing.T) {
		t.Parallel()
		for size := 1; size <= len(all)+1; size++ {
			var got []string
			for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ {
				page, next := said(t, "u", time.Time{}, time.Time{}, size, cursor)
				require.LessOrEqual(t, len(page), size)
				got, cursor = append(page, got...), next
			}
			require.Equal(t, all, got, size)
		}
	})
	t.Run("since is within the bounds and until is not, to the nanosecond", func(t *testing.T) {
		t.Parallel()
		at := log.state("s2").Turn(id("s2", "r2")).CreatedAt
		require.NotZero(t, at.Nanosecond()%1000)
		for _, c := range []struct {
			since, until time.Time
			want         []string
		}{
			{at, time.Time{}, all[4:]},
			{at.Add(1), time.Time{}, all[5:]},
			{at.Add(-1), at, nil},
			{time.Time{}, at, all[:4]},
			{time.Time{}, at.Add(1), all[:5]},
			{at, at.Add(1), all[4:5]},
		} {
			got, _ := said(t, "u", c.since, c.until, 100, "")
			require.Equal(t, c.want, got)
		}
	})
	t.Run("of nobody are none", func(t *testing.T) {
		t.Parallel()
		got, next := said(t, "nobody", time.Time{}, time.Time{}, 10, "")
		require.Empty(t, got)
		require.Empty(t, next)
	})
	t.Run("a limit beyond the bounds is clamped", func(t *testing.T) {
		t.Parallel()
		got, _ := said(t, "u", time.Time{}, time.Time{}, math.MaxInt, "")
		require.Equal(t, all, got)
	})
	t.Run("a cursor that none was is refused", func(t *testing.T) {
		t.Parallel()
		for _, cursor := range []string{"x", "AAAA", "MS4yLjMuNA==", "MS4yLjMuNHg",
			"OTk5OTk5OTk5OTk5OTk5OTk5OTk5OS4wLjEuMQ", "%"} {
			_, _, _, err := a.IdentityTurns(t.Context(), "u", time.Time{}, time.Time{}, 10, cursor)
			require.ErrorIs(t, err, audit.ErrCursor, cursor)
			require.ErrorIs(t, err, decide.ErrInvalid)
		}
	})
}

func requestsOf(turns []audit.Turn) (out []string) {
	for _, t := range turns {
		out = append(out, t.SessionID+" "+t.RequestID)
	}
	return out
}

func TestSessionTurns(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(linked("s", "u"))
	for i := range 6 {
		log.add(started("s", fmt.Sprint("r", i)))
		if i != 3 {
			log.add(finalized("s", fmt.Sprint("r", i)))
		}
	}
	log.redact("s", id("s", "r4"))
	log.add(corrected("s", "r1b", "r1"))
	a := filled(t, log, 4)

	ask := func(limit int) (*session.State, []string) {
		state, at := must.Two(a.SessionTurns(t.Context(), "s", limit))(t)
		require.Equal(t, events.Position{Seq: log.last}, at)
		require.Equal(t, log.last, state.Applied)
		require.Equal(t, log.state("s").Head(), state.Head())
		var out []string
		for _, t := range state.Turns {
			out = append(out, t.RequestID)
		}
		return state, out
	}
	all := []string{"r0", "r1", "r1b", "r2", "r3", "r4", "r5"}
	for limit, want := range map[int][]string{-1: all, 1: all[6:], 2: all[3:], 3: all[1:], 4: all, 5: all,
		10_000: all} {
		state, got := ask(limit)
		require.Equal(t, want, got, "limit %d", limit)
		require.Equal(t, limit < 0 || limit > 4, state.Whole, "limit %d", limit)
	}

	// After a reset nothing before it is asked for.
	log.add(decide.Reset(log.state("s"), "", 0).Facts...)
	log.add(started("s", "r6"), finalized("s", "r6"), started("s", "r7"))
	claim(t, log, a).all(10)
	for limit, want := range map[int][]string{0: {"r6", "r7"}, 1: {"r6", "r7"}, 5: {"r6", "r7"},
		-1: append(slices.Clone(all), "r6", "r7")} {
		state, got := ask(limit)
		require.Equal(t, want, got, "limit %d", limit)
		require.False(t, state.Whole)
	}

	state, at := must.Two(a.SessionTurns(t.Context(), "unknown", 10))(t)
	require.Nil(t, state)
	require.Equal(t, events.Position{}, at)
}

// A reset deletes nothing: what stands before it belongs to the identity, whether the link comes before it or after.
//
//conformance:h51
func TestALinkBringsWhatStandsBeforeAReset(t *testing.T) {
	t.Parallel()
	reset := func(log *journal) { log.add(decide.Reset(log.state("s"), "", 0).Facts...) }
	link := func(log *journal) { log.add(linked("s", "u")) }
	for name, then := range map[string][]func(*journal){
		"linked, then reset": {link, reset},
		"reset, then linked": {reset, link},
		"reset twice":        {reset, reset, link},
	} {
		log := newJournal()
		log.asked("s", "long ago", "the marmot of the silence", "yes")
		log.pass(25 * time.Hour)
		log.asked("s", "a", "the marmot", "a rodent")
		log.asked("s", "b", "the badger", "a mustelid")
		for _, do := range then {
			do(log)
		}
		read := &current{log}
		a := open(t, read)
		f := claim(t, log, a)
		f.all(1)
		require.Equal(t, []string{"a finalized", "b finalized"}, a.requests("s"), name)
		turns, _, _ := must.Three(a.IdentityTurns(t.Context(), "u", time.Time{}, time.Time{}, 0, ""))(t)
		require.Equal(t, []string{"s a", "s b"}, requestsOf(turns), name)
		hits, _, _, err := a.Search(t.Context(), projections.SearchFilter{Query: "marmot", IdentityID: "u"}, 10, "")
		require.NoError(t, err)
		require.Len(t, hits, 1, name)
		list, _, _ := must.Three(a.Sessions(t.Context(), projections.SessionFilter{}, 10, ""))(t)
		require.Equal(t, id("s", "b"), list[0].LastTurn.TurnID, name)

		log.redact("s", id("s", "b"))
		f.all(1)
		require.Equal(t, []string{"a finalized", "b redacted"}, a.requests("s"), name)
		want := a.dump()
		// The tables are the same from a log that has forgotten what was redacted.
		read.journal = log.without(func(e events.Recorded) bool {
			turn, _ := session.Named(e)
			return turn == id("s", "b") && e.Type != events.TypeTurnRedacted
		})
		a.empty()
		claim(t, read.journal, a).all(100)
		sameButSecurity(t, want, a.dump(), name)
	}
}

// A state that is given back can be folded on.
func TestSessionTurnsCanBeFoldedOn(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(linked("s", "u"), started("s", "r1"), finalized("s", "r1"), started("s", "r2"))
	a := filled(t, log, 10)
	log.add(finalized("s", "r2"), started("s", "r3"), corrected("s", "r1b", "r1"))
	state, at := must.Two(a.SessionTurns(t.Context(), "s", -1))(t)
	require.True(t, state.Whole)
	for e, err := range log.Session(t.Context(), "s", at.Seq, log.last) {
		require.NoError(t, err)
		require.True(t, state.Fold(e).Kind.ChangesView())
	}
	sameState(t, log.state("s"), state)
}

// Without PostgreSQL there is no answer, and never an empty one.
func TestReadsWithoutPostgres(t *testing.T) {
	t.Parallel()
	a := filled(t, identityLog(), 100)
	stopped, stop := context.WithCancel(t.Context())
	stop()
	_, err := a.Applied(stopped, 0)
	require.ErrorIs(t, err, audit.ErrUnavailable)
	require.ErrorIs(t, err, context.Canceled)

	a.Close()
	ctx, cancel := context.WithTimeout(t.Context(), hang.Limit)
	defer cancel()
	reads := map[string]func() error{
		"IdentityTurns": func() error {
			_, _, _, err := a.IdentityTurns(ctx, "u", time.Time{}, time.Time{}, 1, "")
			return err
		},
		"SessionTurns": func() error { _, _, err := a.SessionTurns(ctx, "s1", 1); return err },
		"Applied":      func() error { _, err := a.Applied(ctx, 0); return err },
		"Claim":        func() error { _, err := a.Claim(ctx, 0); return err },
	}
	for name, read := range reads {
		require.ErrorIs(t, read(), audit.ErrUnavailable, name)
	}
}

// No clock takes part in the order of turns: not one that was set back, either.
//
//conformance:i13 h29 h51
func TestIdentityTurnsStandInTheOrderOfTheLog(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(linked("s", "u"), started("s", "r1"), finalized("s", "r1"))
	log.pass(-time.Hour)
	log.add(started("s", "r2"), finalized("s", "r2"), started("s", "r3"), finalized("s", "r3"))
	log.pass(2 * time.Hour)
	log.add(started("s", "r4"), finalized("s", "r4"))
	a := filled(t, log, 100)
	turns, _, _ := must.Three(a.IdentityTurns(t.Context(), "u", time.Time{}, time.Time{}, 10, ""))(t)
	require.Equal(t, []string{"s r1", "s r2", "s r3", "s r4"}, requestsOf(turns))
}

// counted is a log that tells how many sessions were read from it.
type counted struct {
	*journal
	reads int
}

func (c *counted) Session(ctx context.Context, sessionID string, after, upTo uint64) iter.Seq2[events.Recorded, error] {
	c.reads++
	return c.journal.Session(ctx, sessionID, after, upTo)
}

func openCounted(t *testing.T, log *journal) (*tables, *counted) {
	c := &counted{journal: log}
	return open(t, c), c
}

// anonymousThenLinked has turns before its link, and an answer after it.
func anonymousThenLinked() *journal {
	l := newJournal()
	l.add(started("s", "r1"), finalized("s", "r1"), started("s", "r2"), linked("s", "u"), finalized("s", "r2"))
	return l
}

func TestALinkNeedsNoReadOfWhatWasSeen(t *testing.T) {
	t.Parallel()
	log := anonymousThenLinked()
	want := filled(t, log, 100).dump()
	a, c := openCounted(t, log)
	for most := 1; most <= 5; most++ {
		a.empty()
		claim(t, log, a).all(most)
		require.Equal(t, want, a.dump(), "batches of %d", most)
		require.Zero(t, c.reads)
	}
}

// Another runner may have applied events between two claims.
//
//conformance:h51
func TestALinkAfterAClaimReadsTheLog(t *testing.T) {
	t.Parallel()
	log := anonymousThenLinked()
	want := filled(t, log, 100).dump()
	a, c := openCounted(t, log)
	claim(t, log, a).next(1)
	claim(t, log, openWith(t, audit.Config{URL: a.url, Log: log})).next(1)
	claim(t, log, a).all(1)
	require.Equal(t, want, a.dump())
	require.Equal(t, 1, c.reads)
}

// What is kept of sessions without a link is bounded; those longest at rest are read.
func TestSessionsBeyondWhatIsKeptAreRead(t *testing.T) {
	t.Parallel()
	log := newJournal()
	long := strings.Repeat("a long answer. ", 60_000)
	for i := range 24 {
		session := fmt.Sprint("s", i)
		final := finalized(session, "r")
		final.AnswerNeutral = long
		log.add(started(session, "r"), final)
	}
	a, c := openCounted(t, log)
	f := claim(t, log, a)
	log.add(linked("s23", "u"))
	f.all(100)
	require.Zero(t, c.reads)
	log.add(linked("s0", "u"))
	f.all(100)
	require.Equal(t, 1, c.reads)
}

// What has met its boundary is nothing that a link brings in, so its texts are kept no
// longer; retention may take it out of the log meanwhile.
func TestASessionThatHasExpiredIsNotKept(t *testing.T) {
	t.Parallel()
	log := newJournal()
	a, c := openCounted(t, log)
	f := claim(t, log, a)
	log.add(started("s", "r1"), finalized("s", "r1"))
	f.all(100)
	log.pass(2 * rules.SessionTTL)
	log.add(started("other", "r1"))
	f.all(100)
	log.add(linked("s", "u"))
	f.all(100)
	require.Equal(t, 1, c.reads)
	require.Equal(t, filled(t, log, 100).dump(), a.dump())
}
