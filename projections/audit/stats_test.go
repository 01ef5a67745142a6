package audit_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
)

// allCounts counts all turns of a log by day.
func allCounts(t require.TestingT, a *audit.Audit, by projections.By) []projections.Counts {
	counts, _, err := a.Counts(context.Background(), projections.CountsFilter{
		Since: day.AddDate(-1, 0, 0), Until: day.AddDate(5, 0, 0), By: by})
	require.NoError(t, err)
	return counts
}

// total returns how many turns were started.
func total(counts []projections.Counts) (n int) {
	for _, c := range counts {
		n += c.Started
	}
	return n
}

// Events without effect are counted by the time at which they were recorded, and by the reason.
func TestCountsOfAnomalies(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(linked("s", "ada"), &events.LinkRefused{SessionID: "s", IdentityID: "thief"})
	log.pass(24 * time.Hour)
	edge := log.now
	log.add(finalized("s", "never started"), finalized("s", "nor that"), &events.LinkRefused{SessionID: "s",
		IdentityID: "thief"})
	a := filled(t, log, 3)
	first := day.Truncate(24 * time.Hour)
	ask := projections.CountsFilter{Since: day, Until: day.AddDate(0, 0, 9), By: projections.ByNone}
	counts, _ := must.Two(a.Anomalies(t.Context(), ask))(t)
	require.Equal(t, []projections.Anomalies{
		{Start: first, Reason: session.CodeLinkedElsewhere, Events: 1},
		{Start: first.AddDate(0, 0, 1), Reason: session.CodeLinkedElsewhere, Events: 1},
		{Start: first.AddDate(0, 0, 1), Reason: session.CodeTurnNotStarted, Events: 2},
	}, counts)
	ask.Since, ask.Hour = edge.Add(time.Second), true
	counts, _ = must.Two(a.Anomalies(t.Context(), ask))(t)
	require.Len(t, counts, 2)
	require.Equal(t, edge.Truncate(time.Hour).UTC(), counts[0].Start)
	ask.Until = ask.Since
	counts, _ = must.Two(a.Anomalies(t.Context(), ask))(t)
	require.Empty(t, counts)
}

// Tables that were just filled have no statistics. There, too, turns are not compared with each session: 8,400 turns of
// 1,400 sessions took more than half a second.
func TestCountsOfNewTablesJoinByHash(t *testing.T) {
	t.Parallel()
	log := newJournal()
	for i := range 100 {
		s := fmt.Sprint("s", i)
		log.add(linked(s, "ada"), started(s, "r1"), finalized(s, "r1"))
	}
	a := filled(t, log, 300)
	plan := must.Get(a.ExplainCounts(t.Context(), projections.CountsFilter{
		Since: day.AddDate(-1, 0, 0), Until: day.AddDate(1, 0, 0), By: projections.ByNone}))(t)
	require.Contains(t, plan, "Hash")
	require.NotContains(t, plan, "Nested Loop")
}

func TestCountsOfTurns(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(started("a", "r1"), finalized("a", "r1"), started("a", "r2"), finalized("a", "r2"), started("a", "r3"))
	log.add(corrected("a", "c1", "r1"))
	log.redact("a", id("a", "r2"))
	log.pass(24 * time.Hour)
	log.add(linked("b", "ada"), started("b", "r1"))
	log.pass(10 * time.Second)
	log.add(finalized("b", "r1"))
	log.add(linked("c", "bob"), started("c", "r1"), &events.IdentityErased{IdentityID: "bob", ReceiptID: "x"},
		started("d", "r1"), finalized("d", "r1"), erased("d"))
	log.add(&events.TurnRecorded{TurnID: id("e", "r1"), SessionID: "e", RequestID: "r1", Question: question("r1"),
		Answer: events.Answer{AnswerNeutral: "a"}})
	a := filled(t, log, 3)
	first := day.Truncate(24 * time.Hour)
	one, two := 1000.0, 11000.0
	require.Equal(t, []projections.Counts{
		{Start: first, Started: 3, Finalized: 1, Redacted: 1, Corrected: 1, Pending: 1, Sessions: 1,
			AnswerP50: &one, AnswerP95: &one},
		{Start: first.AddDate(0, 0, 1), Started: 2, Finalized: 2, Sessions: 2, Identities: 1,
			AnswerP50: &two, AnswerP95: &two},
	}, allCounts(t, a.Audit, projections.ByNone))
	by := allCounts(t, a.Audit, projections.ByPipeline)
	require.Len(t, by, 4)
	require.Equal(t, "pipeline r1", *by[0].By)
	require.Nil(t, by[2].By, "a redacted turn names no pipeline")
	require.Equal(t, 1, by[2].Redacted)

	for by, name := range map[projections.By]string{projections.ByConsultant: question("r1").Consultant,
		projections.ByRepository: question("r1").Repository} {
		require.NotEmpty(t, name)
		require.Equal(t, name, *allCounts(t, a.Audit, by)[0].By)
	}
	hours, at := must.Two(a.Counts(t.Context(), projections.CountsFilter{Since: day, Until: day.Add(3 * time.Second),
		Hour: true, By: projections.ByConsultant}))(t)
	require.Equal(t, []events.Position{{Seq: log.last}}, at)
	require.Len(t, hours, 1)
	require.Equal(t, day.Truncate(time.Hour), hours[0].Start)
	require.Equal(t, 1, hours[0].Started, "until is not included")

	a.exec("update turnledger.event_ledger set partition = 1, place = 1 where session_id = 'e'")
	require.Equal(t, 5, total(allCounts(t, a.Audit, projections.ByNone)), "places of two partitions are not one")

	edge := log.state("a").Turn(id("a", "r2")).CreatedAt
	for _, at := range []time.Time{edge.Add(-time.Microsecond), edge, edge.Add(time.Microsecond)} {
		behind, _ := must.Two(a.Counts(t.Context(), projections.CountsFilter{Since: at, Until: day.Add(time.Minute),
			By: projections.ByNone}))(t)
		before, _ := must.Two(a.Counts(t.Context(), projections.CountsFilter{Since: day.Add(-time.Hour), Until: at,
			By: projections.ByNone}))(t)
		want := 2 // of three turns
		if at.After(edge) {
			want = 1
		}
		require.Equal(t, []int{want, 3 - want}, []int{behind[0].Started, before[0].Started}, at)
	}
}

// An answer that came in one append with its question says nothing about how long answers take.
func TestAnAnswerOfItsQuestionsAppendTookNoTime(t *testing.T) {
	t.Parallel()
	log := newJournal()
	for n, f := range []events.Fact{started("a", "r1"), finalized("a", "r1")} {
		env := envelope(f)
		env.Header[events.HeaderCall] = []string{fmt.Sprintf("call.%d.2.0", n)}
		log.publish(env)
	}
	counts := allCounts(t, filled(t, log, 3).Audit, projections.ByNone)
	require.Len(t, counts, 1)
	require.Equal(t, []any{1, 1, (*float64)(nil)}, []any{counts[0].Started, counts[0].Finalized, counts[0].AnswerP50})
}

// sameCounts holds the counts against the folds of the log.
func sameCounts(t *rapid.T, log *journal, a *audit.Audit) {
	gone := map[string]bool{}
	for _, e := range log.events {
		if f, ok := e.Fact.(*events.IdentityErased); ok && e.Problem == "" {
			gone[f.IdentityID] = true
		}
	}
	want := map[time.Time]projections.Counts{}
	took, of := map[time.Time][]float64{}, map[time.Time]map[string]bool{}
	for _, sessionID := range sessions {
		s, seen := log.state(sessionID), map[time.Time]bool{}
		if s.Erased != 0 || gone[s.Identity] {
			continue
		}
		for _, turn := range s.Turns {
			if turn.Status == session.Replaced || turn.ReplacedBy != uuid.Nil {
				continue // a later version is counted
			}
			start := turn.CreatedAt.Truncate(24 * time.Hour)
			c := want[start]
			c.Start = start
			c.Started++
			switch turn.Status {
			case session.Pending:
				c.Pending++
			case session.Redacted:
				c.Redacted++
			case session.Finalized, session.Replaced:
				c.Finalized++
				pruned := func(t *session.Turn) bool { return t.PrunedAt() > t.Final }
				if pruned(turn) {
					break // what stood before has no row any more
				}
				if turn.Version > 1 {
					c.Corrected++
				}
				if slices.ContainsFunc(s.Chain(turn), pruned) {
					break // nor has the answer of a version that was pruned before it was corrected
				}
				first := s.Turns[slices.IndexFunc(s.Turns, func(t *session.Turn) bool {
					return t.Place == turn.Place
				})]
				if first.Final == first.Started {
					break // it came whole, and nobody waited
				}
				waited := first.FinalizedAt.Truncate(time.Microsecond).Sub(first.CreatedAt.Truncate(time.Microsecond))
				took[start] = append(took[start], float64(waited.Microseconds())/1000)
			}
			if !seen[start] {
				seen[start] = true
				c.Sessions++
				if of[start] == nil {
					of[start] = map[string]bool{"": true}
				}
				if !of[start][s.Identity] {
					of[start][s.Identity] = true
					c.Identities++
				}
			}
			want[start] = c
		}
	}
	got := map[time.Time]projections.Counts{}
	for _, c := range allCounts(t, a, projections.ByNone) {
		for p, have := range map[float64]**float64{0.5: &c.AnswerP50, 0.95: &c.AnswerP95} {
			if *have == nil {
				require.Empty(t, took[c.Start])
				continue
			}
			require.InDelta(t, percentile(took[c.Start], p), **have, 0.001)
			*have = nil
		}
		got[c.Start] = c
	}
	require.Equal(t, want, got)
}

// percentile is that of PostgreSQL: it lies between two of the values.
func percentile(of []float64, p float64) float64 {
	slices.Sort(of)
	at := p * float64(len(of)-1)
	below := int(at)
	if below == len(of)-1 {
		return of[below]
	}
	return of[below] + (at-float64(below))*(of[below+1]-of[below])
}
