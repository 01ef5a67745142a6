package audit_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
)

// pages lists all sessions, so many a page.
func pages(
	t require.TestingT, a *audit.Audit, f projections.SessionFilter, limit int,
) (all []projections.ListedSession) {
	for cursor, n := "", 0; ; n++ {
		page, _, next, err := a.Sessions(context.Background(), f, limit, cursor)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), limit)
		require.Less(t, n, 1000, "no end")
		all = append(all, page...)
		if cursor = next; next == "" {
			return all
		}
	}
}

// sameList holds a list against the folds of the log.
func sameList(t *rapid.T, log *journal, a *audit.Audit) {
	erased := map[string]bool{}
	for _, e := range log.events {
		if f, ok := e.Fact.(*events.IdentityErased); ok && e.Problem == "" {
			erased[f.IdentityID] = true
		}
	}
	var want []*conversation.State
	for _, session := range sessions {
		s := log.state(session)
		if s.Found() && s.Erased == 0 && !erased[s.Identity] {
			want = append(want, s)
		}
	}
	at := listedTime
	slices.SortFunc(want, func(x, y *conversation.State) int {
		return cmp.Or(at(y).Compare(at(x)), strings.Compare(x.SessionID, y.SessionID))
	})
	var f projections.SessionFilter
	if len(want) > 0 {
		moment := func(label string) time.Time {
			return at(rapid.SampledFrom(want).Draw(t, label)).Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, label)))
		}
		switch rapid.IntRange(0, 3).Draw(t, "bounds") {
		case 1:
			f.Since = moment("since")
		case 2:
			f.Until = moment("until")
		case 3:
			f.IdentityID = rapid.SampledFrom([]string{"u", "v"}).Draw(t, "of")
		}
	}
	want = slices.DeleteFunc(want, func(s *conversation.State) bool {
		return at(s).Before(f.Since) || !f.Until.IsZero() && !at(s).Before(f.Until) ||
			f.IdentityID != "" && f.IdentityID != s.Identity
	})
	got := pages(t, a, f, rapid.IntRange(1, 3).Draw(t, "page"))
	require.Len(t, got, len(want))
	for i, s := range want {
		require.Equal(t, s.SessionID, got[i].SessionID)
		require.Equal(t, s.Description(), got[i].Description())
		require.Equal(t, []any{s.Identity, s.CreatedAt, s.LastActive, s.Finalized, s.Pending}, []any{got[i].Identity,
			got[i].CreatedAt, got[i].LastActive, got[i].Finalized, got[i].Pending})
	}
}

// listedTime is the time by which lists order a session.
func listedTime(s *conversation.State) time.Time {
	if s.LastActive.IsZero() {
		return s.CreatedAt
	}
	return s.LastActive
}

// Titles are found in any case, and metadata is listed as it was given, whatever PostgreSQL can't hold or fold.
func TestListOfSessionsWithAnyTexts(t *testing.T) {
	t.Parallel()
	log := newJournal()
	for i, title := range []string{"Ärger mit Quarks", "eine Straße", "mit ␀0 und ␀", "ΟΔΟΣ"} {
		value := []string{"a␀b", "x", "␀0", "␀␀"}[i]
		log.add(log.state(fmt.Sprint("s", i)).DecideDescribe(conversation.Describe{SessionID: fmt.Sprint("s", i),
			RequestID: "d", Title: &title, Metadata: map[string]*string{"sym": &value}}, 0).Facts...)
	}
	log.add(linked("s2", "ada"))
	a := filled(t, log, 3)
	found := func(f projections.SessionFilter) (out []string) {
		for _, s := range pages(t, a.Audit, f, 1) {
			require.Equal(t, log.state(s.SessionID).Description(), s.Description())
			out = append(out, s.SessionID)
		}
		return out
	}
	require.Len(t, found(projections.SessionFilter{}), 4)
	for part, id := range map[string]string{"ärger": "s0", "A\u0308RGER": "s0", "STRASSE": "s1", "␀0 UND": "s2",
		"οδος": "s3"} {
		require.Equal(t, []string{id}, found(projections.SessionFilter{Title: part}), part)
	}
	require.Len(t, found(projections.SessionFilter{Title: "MIT"}), 2)
	for value, id := range map[string]string{"a␀b": "s0", "␀0": "s2", "␀␀": "s3"} {
		by := projections.SessionFilter{Metadata: map[string]string{"sym": value}}
		require.Equal(t, []string{id}, found(by), value)
	}
	require.Empty(t, found(projections.SessionFilter{Metadata: map[string]string{"sym": "\x00", "\x00": ""}}))
	require.Empty(t, found(projections.SessionFilter{Title: "\x00"}))
	state, _ := must.Two(a.SessionTurns(t.Context(), "s2", 0))(t)
	require.Equal(t, log.state("s2").Description(), state.Description())
}

func TestListOfSessions(t *testing.T) {
	t.Parallel()
	log := newJournal()
	title := func(session, request, title string, metadata map[string]*string) {
		log.add(log.state(session).DecideDescribe(conversation.Describe{SessionID: session, RequestID: request,
			Title: &title, Metadata: metadata}, 0).Facts...)
	}
	physics, pinned := "physics", "yes"
	log.add(started("a", "r1"), finalized("a", "r1"), linked("b", "ada"), started("b", "r1"), finalized("b", "r1"))
	title("b", "d", "Old QUARKS", nil)
	title("b", "e", "New Leptons", map[string]*string{"folder": &physics, "pinned": &pinned})
	title("c", "d", "Quarks & more", nil)
	log.add(log.state("c").DecideDescribe(conversation.Describe{SessionID: "c", RequestID: "e",
		Kind: events.KindConversation}, 0).Facts...)
	log.add(started("d", "r1"), erased("d"), linked("e", "bob"),
		&events.IdentityErased{IdentityID: "bob", ReceiptID: "x"}, started("b", "r2"))
	a := filled(t, log, 3)
	ids := func(f projections.SessionFilter) (out []string) {
		for _, s := range pages(t, a.Audit, f, 2) {
			out = append(out, s.SessionID)
		}
		return out
	}
	require.Equal(t, []string{"b", "c", "a"}, ids(projections.SessionFilter{}))
	require.Equal(t, []string{"b"}, ids(projections.SessionFilter{IdentityID: "ada"}))
	require.Equal(t, []string{"c"}, ids(projections.SessionFilter{Title: "quark"}), "the replaced title is gone")
	require.Equal(t, []string{"b"}, ids(projections.SessionFilter{Metadata: map[string]string{"folder": "physics"}}))
	require.Empty(t, ids(projections.SessionFilter{Title: "%"}))
	require.Equal(t, []string{"c"}, ids(projections.SessionFilter{Kind: events.KindConversation}))
	require.Empty(t, ids(projections.SessionFilter{Kind: events.KindResponse}))
	began := log.state("c").CreatedAt
	require.Equal(t, []string{"c", "a"}, ids(projections.SessionFilter{Until: began.Add(1)}))
	require.Equal(t, []string{"b", "c"}, ids(projections.SessionFilter{Since: began}))
	require.Equal(t, []string{"b"}, ids(projections.SessionFilter{Since: began.Add(1)}))
	last := pages(t, a.Audit, projections.SessionFilter{IdentityID: "ada"}, 1)[0].LastTurn
	require.Equal(t, &projections.LastTurn{TurnID: id("b", "r2"), Question: question("r2").QuestionNeutral}, last)
	for _, cursor := range []string{
		"s", "s.-300000000000000000.5.x", "s.1.1000.a", "s.1.-1.a", "s.01.5.a", "s.1.5.", "x.1.5.a",
	} {
		_, _, _, err := a.Sessions(t.Context(), projections.SessionFilter{}, 1,
			base64.RawURLEncoding.EncodeToString([]byte(cursor)))
		require.ErrorIs(t, err, audit.ErrCursor, cursor)
	}
	_, _, _, err := a.Sessions(t.Context(), projections.SessionFilter{}, 1, "x")
	require.ErrorIs(t, err, audit.ErrCursor)
}

// The last turn of a listed session is the newest that is not redacted, in its newest version, its texts cut.
func TestLastTurnsOfListedSessions(t *testing.T) {
	t.Parallel()
	log := newJournal()
	for _, s := range []string{"long", "corrected", "redacted", "pending"} {
		log.add(linked(s, "of "+s), started(s, "r1"), finalized(s, "r1"))
	}
	long, answered := started("long", "r2"), finalized("long", "r2")
	long.QuestionNeutral, answered.AnswerNeutral = strings.Repeat("é", 201), strings.Repeat("ä", 201)
	log.add(long, answered, started("redacted", "r2"), corrected("corrected", "c1", "r1"), started("pending", "r2"))
	log.redact("redacted", id("redacted", "r2"))
	a := filled(t, log, 3)
	of := func(s string) projections.LastTurn {
		page := pages(t, a.Audit, projections.SessionFilter{IdentityID: "of " + s}, 1)
		require.Len(t, page, 1)
		return *page[0].LastTurn
	}
	turn := func(s, request string, status conversation.Status) projections.LastTurn {
		out := projections.LastTurn{TurnID: id(s, request), Status: status, Question: "question " + request}
		if status == conversation.Finalized {
			out.Answer = "answer " + request
		}
		return out
	}
	cut := turn("long", "r2", conversation.Finalized)
	cut.Question, cut.Answer = strings.Repeat("é", 200), strings.Repeat("ä", 200)
	require.Equal(t, cut, of("long"))
	require.Equal(t, turn("corrected", "c1", conversation.Finalized), of("corrected"))
	require.Equal(t, turn("redacted", "r1", conversation.Finalized), of("redacted"))
	require.Equal(t, turn("pending", "r2", conversation.Pending), of("pending"))
}

// BenchmarkListOfSessions reads pages of 50 of 100,000 sessions.
func BenchmarkListOfSessions(b *testing.B) {
	log := newJournal()
	for n := range 100_000 {
		s := fmt.Sprint("s", n)
		log.add(started(s, "r"))
		if n%2 == 0 {
			log.add(linked(s, fmt.Sprint("i", n%500)))
		}
	}
	a := filled(b, log, 5000)
	a.exec("vacuum analyze turnledger.sessions")
	for name, filter := range map[string]projections.SessionFilter{"all": {}, "identity": {IdentityID: "i0"}} {
		b.Run(name, func(b *testing.B) {
			took, cursor := make([]time.Duration, 0, b.N), ""
			for b.Loop() {
				began := time.Now()
				_, _, next, err := a.Sessions(b.Context(), filter, 50, cursor)
				require.NoError(b, err)
				took = append(took, time.Since(began))
				cursor = next
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

// A branch whose root was erased has no identity: it is listed as nobody's, and no list or search of the identity shows
// its turns.
//
//conformance:h70
func TestABranchOfAnErasedRootIsNobodys(t *testing.T) {
	t.Parallel()
	log := newJournal()
	log.add(linked("root", "u"), &events.SessionForked{SessionID: "branch", RequestID: "f", FromSessionID: "root",
		Root: "root"}, linked("branch", "u"))
	log.asked("branch", "a", "the marmot", "a rodent")
	a := filled(t, log, 10)
	seen := func() (of []string) {
		turns, _, _, err := a.IdentityTurns(t.Context(), "u", time.Time{}, time.Time{}, 0, "")
		require.NoError(t, err)
		hits, _, _, err := a.Search(t.Context(), projections.SearchFilter{Query: "marmot"}, 10, "")
		require.NoError(t, err)
		recalled, _ := must.Two(a.Recall(t.Context(), "u", "marmot", 10))(t)
		byID, _ := must.Two(a.TurnsByID(t.Context(), []uuid.UUID{id("branch", "a")}))(t)
		list, _, _, err := a.Sessions(t.Context(), projections.SessionFilter{IdentityID: "u"}, 10, "")
		require.NoError(t, err)
		all, _, _, err := a.Sessions(t.Context(), projections.SessionFilter{}, 10, "")
		require.NoError(t, err)
		counts, _ := must.Two(a.Counts(t.Context(), projections.CountsFilter{Since: day.Add(-time.Hour),
			Until: day.Add(time.Hour), By: projections.ByNone}))(t)
		return append(of, fmt.Sprint(len(turns), len(hits), len(recalled), len(byID), len(list)), all[0].SessionID,
			all[0].Identity, fmt.Sprint(counts[0].Identities))
	}
	require.Equal(t, []string{"1 1 1 1 2", "branch", "u", "1"}, seen())
	log.add(erased("root"))
	claim(t, log, a).all(1)
	require.Equal(t, []string{"0 0 0 0 0", "branch", "", "0"}, seen())
}
