package audit_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/projections/audit/words"
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
	var want []*session.State
	for _, sessionID := range sessions {
		s := log.state(sessionID)
		if s.Found() && s.Erased == 0 && !erased[s.Identity] {
			want = append(want, s)
		}
	}
	at := listedTime
	slices.SortFunc(want, func(x, y *session.State) int {
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
	want = slices.DeleteFunc(want, func(s *session.State) bool {
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
func listedTime(s *session.State) time.Time {
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
		id := fmt.Sprint("s", i)
		log.add(decide.Describe{SessionID: id, RequestID: "d", Title: &title,
			Metadata: map[string]*string{"sym": &value}}.On(log.state(id), 0).Facts...)
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
		log.add(decide.Describe{SessionID: session, RequestID: request,
			Title: &title, Metadata: metadata}.On(log.state(session), 0).Facts...)
	}
	physics, pinned := "physics", "yes"
	log.add(started("a", "r1"), finalized("a", "r1"), linked("b", "ada"), started("b", "r1"), finalized("b", "r1"))
	title("b", "d", "Old QUARKS", nil)
	title("b", "e", "New Leptons", map[string]*string{"folder": &physics, "pinned": &pinned})
	title("c", "d", "Quarks & more", nil)
	log.add(decide.Describe{SessionID: "c", RequestID: "e",
		Kind: events.KindConversation}.On(log.state("c"), 0).Facts...)
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
		require.ErrorIs(t, must.Err(a.Sessions(t.Context(), projections.SessionFilter{}, 1,
			base64.RawURLEncoding.EncodeToString([]byte(cursor)))), audit.ErrCursor, cursor)
	}
	require.ErrorIs(t, must.Err(a.Sessions(t.Context(), projections.SessionFilter{}, 1, "x")), audit.ErrCursor)
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
	turn := func(s, request string, status session.Status) projections.LastTurn {
		out := projections.LastTurn{TurnID: id(s, request), Status: status, Question: "question " + request}
		if status == session.Finalized {
			out.Answer = "answer " + request
		}
		return out
	}
	cut := turn("long", "r2", session.Finalized)
	cut.Question, cut.Answer = strings.Repeat("é", 200), strings.Repeat("ä", 200)
	require.Equal(t, cut, of("long"))
	require.Equal(t, turn("corrected", "c1", session.Finalized), of("corrected"))
	require.Equal(t, turn("redacted", "r1", session.Finalized), of("redacted"))
	require.Equal(t, turn("pending", "r2", session.Pending), of("pending"))
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
				_, _, next := must.Three(a.Sessions(b.Context(), filter, 50, cursor))(b)
				took = append(took, time.Since(began))
				cursor = next
			}
			percentiles(b, took)
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
		turns, _, _ := must.Three(a.IdentityTurns(t.Context(), "u", time.Time{}, time.Time{}, 0, ""))(t)
		hits, _, _ := must.Three(a.Search(t.Context(), projections.SearchFilter{Query: "marmot"}, 10, ""))(t)
		recalled, _ := must.Two(a.Recall(t.Context(), "u", "marmot", 10))(t)
		byID, _ := must.Two(a.TurnsByID(t.Context(), []uuid.UUID{id("branch", "a")}))(t)
		list, _, _ := must.Three(a.Sessions(t.Context(), projections.SessionFilter{IdentityID: "u"}, 10, ""))(t)
		all, _, _ := must.Three(a.Sessions(t.Context(), projections.SessionFilter{}, 10, ""))(t)
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

// letters of titles: some of them fold to several, or to one together.
var letters = []rune("aAb  ßsSｆﬁİi\u0307e\u0301É学校데␀0%_\\ς")

// Whatever a title and a part are, the sessions with it are listed in their order, page by page: those that the newest
// titles give, those that the index gives, and those of a process with another key, which can't use the index.
func TestListsByTitleAreThoseOfAModel(t *testing.T) {
	t.Parallel()
	read := &current{newJournal()}
	url := pg.URL(t)
	opened := func(key string) *audit.Audit {
		a, err := audit.Open(t.Context(), audit.Config{URL: url, Rules: rules, Log: read, SearchKey: words.NewKey(key)})
		require.NoError(t, err)
		t.Cleanup(a.Close)
		return a
	}
	a := connected(t, opened("k"), url, "turnledger", read)
	stranger := opened("another")
	rapid.Check(t, func(t *rapid.T) {
		log := titledAtRandom(t)
		read.journal = log
		a.empty()
		claim(t, log, a).all(rapid.IntRange(1, 30).Draw(t, "batch"))
		require.Len(t, a.column("select '' from turnledger.sessions where title is not null or metadata <> '{}'"),
			len(a.column("select '' from turnledger.event_ledger where description_terms is not null")))
		search := func(key *audit.Audit, f projections.SessionFilter, limit int) []string {
			return idsOf(pages(t, key, f, limit))
		}
		for range 6 {
			f := projections.SessionFilter{Title: partAtRandom(t, log)}
			if rapid.Bool().Draw(t, "of ada") {
				f.IdentityID = "ada"
			}
			if value := rapid.SampledFrom([]string{"", "x", "y\x00"}).Draw(t, "with"); value != "" {
				f.Metadata = map[string]string{"k": value}
			}
			want, limit := titledInModel(log, f), rapid.IntRange(1, 4).Draw(t, "limit")
			a.NarrowTitles(rapid.IntRange(1, 4).Draw(t, "newest"))
			require.Equal(t, want, search(a.Audit, f, limit), "%q", f.Title)
			require.Equal(t, want, search(stranger, f, limit), "%q with another key", f.Title)
		}
	})
}

func titledAtRandom(t *rapid.T) *journal {
	log := newJournal()
	for n := range rapid.IntRange(1, 30).Draw(t, "events") {
		session := fmt.Sprint("s", rapid.IntRange(0, 9).Draw(t, "session"))
		state := log.state(session)
		switch rapid.IntRange(0, 9).Draw(t, "event") {
		case 0:
			if state.Found() && state.Erased == 0 {
				log.add(erased(session))
			}
		case 1:
			log.add(decide.Link(state, "ada", "").Facts...)
		case 2:
			log.add(started(session, fmt.Sprint(n)))
		default:
			title := rapid.StringOfN(rapid.SampledFrom(letters), 0, 8, -1).Draw(t, "title")
			var metadata map[string]*string
			if value := rapid.SampledFrom([]string{"", "x", "y\x00"}).Draw(t, "metadata"); value != "" {
				metadata = map[string]*string{"k": &value}
			}
			log.add(decide.Describe{SessionID: session, RequestID: fmt.Sprint(n),
				Title: &title, Metadata: metadata}.On(state, 0).Facts...)
		}
	}
	return log
}

// partAtRandom is a part of a title that was given, or any text.
func partAtRandom(t *rapid.T, log *journal) string {
	if rapid.IntRange(0, 3).Draw(t, "any") > 0 {
		for _, e := range slices.Backward(log.events) {
			if f, ok := e.Fact.(*events.SessionDescribed); ok && f.Title != "" && rapid.Bool().Draw(t, "this") {
				title := []rune(f.Title)
				from := rapid.IntRange(0, len(title)-1).Draw(t, "from")
				part := string(title[from:rapid.IntRange(from+1, len(title)).Draw(t, "to")])
				return rapid.SampledFrom([]string{part, strings.ToUpper(part), words.Fold(part)}).Draw(t, "as")
			}
		}
	}
	return rapid.StringOfN(rapid.SampledFrom(letters), 1, 4, -1).Draw(t, "part")
}

// titledInModel looks at each session.
func titledInModel(log *journal, f projections.SessionFilter) (ids []string) {
	var all []*session.State
	for n := range 10 {
		s := log.state(fmt.Sprint("s", n))
		if s.Found() && s.Erased == 0 && (f.IdentityID == "" || f.IdentityID == s.Identity) &&
			(f.Metadata == nil || s.Description().Metadata == session.MetadataText(f.Metadata)) &&
			strings.Contains(words.Fold(s.Description().Title), words.Fold(f.Title)) {
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(x, y *session.State) int { return listedTime(y).Compare(listedTime(x)) })
	for _, s := range all {
		ids = append(ids, s.SessionID)
	}
	return ids
}

func idsOf(page []projections.ListedSession) (ids []string) {
	for _, s := range page {
		ids = append(ids, s.SessionID)
	}
	return ids
}

// Of 20,000 sessions with a title, the few with a rare part are read, and no other.
func TestARareTitleIsReadByTheIndex(t *testing.T) {
	t.Parallel()
	a := filled(t, aboutItems(20_000), 5000)
	for part, want := range map[string]int{"ITEM 777": 11, "item 19": 1111, "of quarks": 0} {
		f := projections.SessionFilter{Title: part}
		require.Len(t, pages(t, a.Audit, f, 100), want, part)
		raw := must.Get(a.ExplainTitles(t.Context(), f))(t)
		require.Contains(t, readsAtMost(t, raw, 2*want), "event_ledger_described")
	}
}

// Of 20,000 sessions with metadata, the few with a rare value are read, and no other; where a value is common, those of
// a page.
func TestRareMetadataIsReadByTheIndex(t *testing.T) {
	t.Parallel()
	log, app := newJournal(), "notes"
	for n := range 20_000 {
		s, item := fmt.Sprint("s", n), fmt.Sprint(n%2000)
		log.add(decide.Describe{SessionID: s, RequestID: "d",
			Metadata: map[string]*string{"app": &app, "item": &item}}.On(session.New(s, rules), 0).Facts...)
	}
	a := filled(t, log, 5000)
	a.exec("analyze turnledger.sessions")
	for _, f := range []struct {
		metadata map[string]string
		want     int
	}{
		{map[string]string{"item": "777"}, 10}, {map[string]string{"app": "notes", "item": "19"}, 10},
		{map[string]string{"item": "notes"}, 0}, {map[string]string{"app": "notes"}, 101},
	} {
		filter := projections.SessionFilter{Metadata: f.metadata}
		page, _, _ := must.Three(a.Sessions(t.Context(), filter, 101, ""))(t)
		require.Len(t, page, f.want, f.metadata)
		indexes := readsAtMost(t, must.Get(a.ExplainMetadata(t.Context(), filter))(t), 2*f.want)
		if f.want < 101 {
			require.Contains(t, indexes, "event_ledger_described")
		}
	}
}

// aboutItems is a log of so many sessions with a title.
func aboutItems(n int) *journal {
	log := newJournal()
	for n := range n {
		s, title := fmt.Sprint("s", n), fmt.Sprint("About item ", n)
		log.add(decide.Describe{SessionID: s, RequestID: "d",
			Title: &title}.On(session.New(s, rules), 0).Facts...)
	}
	return log
}

// BenchmarkListByTitle reads the first page of 50 of 100,000 sessions with a part of a title: by the titles alone, as
// a process with another key does, by the index alone, and as usual.
func BenchmarkListByTitle(b *testing.B) {
	a := filled(b, aboutItems(100_000), 5000)
	a.exec("vacuum analyze turnledger.sessions, turnledger.event_ledger")
	for _, part := range []string{"item", "item 77", "7777", "quark"} {
		for _, way := range []struct {
			name, search string
			titles       int
		}{{"titles", "another", 0}, {"index", "", 0}, {"both", "", 1000}} {
			b.Run(part+"/"+way.name, func(b *testing.B) {
				a.exec("update turnledger.generation set search = $1", way.search)
				a.NarrowTitles(way.titles)
				var took []time.Duration
				for b.Loop() {
					began := time.Now()
					must.Three(a.Sessions(b.Context(), projections.SessionFilter{Title: part}, 50, ""))(b)
					took = append(took, time.Since(began))
				}
				percentiles(b, took)
			})
		}
	}
}

// plan is a node of a plan that was carried out.
type plan struct {
	Relation string  `json:"Relation Name"`
	Index    string  `json:"Index Name"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Removed  float64 `json:"Rows Removed by Filter"`
	Recheck  float64 `json:"Rows Removed by Index Recheck"`
	Plans    []plan
}

// readsAtMost holds a plan to so many sessions and as many of their events, and returns the indexes that it reads.
func readsAtMost(t *testing.T, raw []byte, most int) []string {
	t.Helper()
	var plans []struct{ Plan plan }
	require.NoError(t, json.Unmarshal(raw, &plans))
	read, indexes := plans[0].Plan.reads()
	require.LessOrEqual(t, read["sessions"], float64(most), "%s", raw)
	require.LessOrEqual(t, read["event_ledger"], float64(most), "%s", raw)
	return indexes
}

// reads returns how many rows of each table are read, and by which indexes.
func (p plan) reads() (rows map[string]float64, indexes []string) {
	rows = map[string]float64{p.Relation: p.Loops * (p.Rows + p.Removed + p.Recheck)}
	indexes = append(indexes, p.Index)
	for _, below := range p.Plans {
		more, others := below.reads()
		for table, n := range more {
			rows[table] += n
		}
		indexes = append(indexes, others...)
	}
	return rows, indexes
}

// The numbers of a title go with it: when it is replaced, taken away or erased, in one batch or in two.
func TestGramsGoWithTheTitle(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 100} {
		log := newJournal()
		describe := func(session, request, title string) {
			log.add(decide.Describe{SessionID: session, RequestID: request,
				Title: &title}.On(log.state(session), 0).Facts...)
		}
		describe("a", "1", "quark")
		a := filled(t, log, batch)
		grams := func() []string {
			claim(t, log, a).all(batch)
			return a.column("select session_id || ' ' || description_terms::text from turnledger.event_ledger " +
				"where description_terms is not null order by 1")
		}
		quark := grams()
		require.Len(t, quark, 1)
		describe("a", "2", "lepton")
		require.Len(t, grams(), 1)
		require.NotEqual(t, quark, grams())
		describe("a", "3", "quark")
		require.Equal(t, quark, grams())
		describe("a", "4", "")
		require.Empty(t, grams())
		describe("a", "5", "quark")
		describe("b", "1", "quark")
		require.Len(t, grams(), 2)
		log.add(erased("b"))
		require.Equal(t, quark, grams())
		describe("a", "6", "muon")
		log.add(erased("a"))
		require.Empty(t, grams())
		describe("c", "1", "quark")
		require.Len(t, grams(), 1)
		a.exec("analyze turnledger.event_ledger")
		require.Empty(t, a.column("select attname from pg_stats where attname = 'description_terms'"),
			"nor in statistics")
	}
}
