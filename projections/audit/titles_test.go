package audit_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/audit"
	"github.com/turnledger/turnledger/projections/audit/words"
)

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
			log.add(state.DecideLink("ada", "").Facts...)
		case 2:
			log.add(started(session, fmt.Sprint(n)))
		default:
			title := rapid.StringOfN(rapid.SampledFrom(letters), 0, 8, -1).Draw(t, "title")
			var metadata map[string]*string
			if value := rapid.SampledFrom([]string{"", "x", "y\x00"}).Draw(t, "metadata"); value != "" {
				metadata = map[string]*string{"k": &value}
			}
			log.add(state.DecideDescribe(conversation.Describe{SessionID: session, RequestID: fmt.Sprint(n),
				Title: &title, Metadata: metadata}, 0).Facts...)
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
	var all []*conversation.State
	for n := range 10 {
		s := log.state(fmt.Sprint("s", n))
		if s.Found() && s.Erased == 0 && (f.IdentityID == "" || f.IdentityID == s.Identity) &&
			(f.Metadata == nil || s.Description().Metadata == conversation.MetadataText(f.Metadata)) &&
			strings.Contains(words.Fold(s.Description().Title), words.Fold(f.Title)) {
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(x, y *conversation.State) int { return listedTime(y).Compare(listedTime(x)) })
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
		var plans []struct{ Plan plan }
		require.NoError(t, json.Unmarshal(raw, &plans))
		read, indexes := plans[0].Plan.reads()
		require.Contains(t, indexes, "event_ledger_described", "%s", raw)
		require.LessOrEqual(t, read["sessions"], float64(2*want), "%s", raw)
		require.LessOrEqual(t, read["event_ledger"], float64(2*want), "%s", raw)
	}
}

// Of 20,000 sessions with metadata, the few with a rare value are read, and no other; where a value is common, those of
// a page.
func TestRareMetadataIsReadByTheIndex(t *testing.T) {
	t.Parallel()
	log, app := newJournal(), "notes"
	for n := range 20_000 {
		s, item := fmt.Sprint("s", n), fmt.Sprint(n%2000)
		log.add(conversation.New(s, rules).DecideDescribe(conversation.Describe{SessionID: s, RequestID: "d",
			Metadata: map[string]*string{"app": &app, "item": &item}}, 0).Facts...)
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
		page, _, _, err := a.Sessions(t.Context(), filter, 101, "")
		require.NoError(t, err)
		require.Len(t, page, f.want, f.metadata)
		raw := must.Get(a.ExplainMetadata(t.Context(), filter))(t)
		var plans []struct{ Plan plan }
		require.NoError(t, json.Unmarshal(raw, &plans))
		read, indexes := plans[0].Plan.reads()
		require.LessOrEqual(t, read["sessions"], float64(2*f.want), "%s", raw)
		require.LessOrEqual(t, read["event_ledger"], float64(2*f.want), "%s", raw)
		if f.want < 101 {
			require.Contains(t, indexes, "event_ledger_described", "%s", raw)
		}
	}
}

// aboutItems is a log of so many sessions with a title.
func aboutItems(n int) *journal {
	log := newJournal()
	for n := range n {
		s, title := fmt.Sprint("s", n), fmt.Sprint("About item ", n)
		log.add(conversation.New(s, rules).DecideDescribe(conversation.Describe{SessionID: s, RequestID: "d",
			Title: &title}, 0).Facts...)
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
					_, _, _, err := a.Sessions(b.Context(), projections.SessionFilter{Title: part}, 50, "")
					require.NoError(b, err)
					took = append(took, time.Since(began))
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
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
			log.add(log.state(session).DecideDescribe(conversation.Describe{SessionID: session, RequestID: request,
				Title: &title}, 0).Facts...)
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
