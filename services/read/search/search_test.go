package search_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
	"github.com/turnledger/turnledger/services"
)

const (
	question = projections.QuestionHalf
	answer   = projections.AnswerHalf
)

func ask(mode services.SearchMode, limit int) services.SearchAsk {
	return services.SearchAsk{Mode: mode, Limit: limit, SearchFilter: projections.SearchFilter{Query: "a query"}}
}

func takenBack(t *testing.T, w *world) float64 {
	t.Helper()
	families := must.Get(w.registry.Gather())(t)
	for _, f := range families {
		if f.GetName() == "turnledger_index_hits_taken_back_total" {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatal("no such metric")
	return 0
}

// Every turn that may be shown comes once, over all pages, in the order of nearness; the index is asked for more until
// a page is full. What the truth does not know is counted, and in no answer.
func TestPagesByMeaning(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{2, 7} { // 2 are in the first look
		pagesByMeaning(t, limit)
	}
}

func pagesByMeaning(t *testing.T, limit int) {
	t.Helper()
	w := newWorld(t)
	var want []int
	for n := range 230 {
		w.add(n, 1-float64(n/2)/1000, question) // pairs with the same score
		if n < 120 && n%40 != 3 {
			delete(w.turns, id(n))
			continue
		}
		want = append(want, n)
	}
	s := w.searcher()
	var got []int
	a := ask(services.SearchMeaning, limit)
	for pages := 0; ; pages++ {
		require.Less(t, pages, 200)
		page := must.Get(s.Search(t.Context(), a))(t)
		require.Equal(t, services.SearchMeaning, page.Mode)
		require.LessOrEqual(t, len(page.Hits), limit)
		got = append(got, turnsOf(page.Hits)...)
		if a.Cursor = page.NextCursor; a.Cursor == "" {
			break
		}
		require.Len(t, page.Hits, limit)
	}
	require.Equal(t, want, got)
	var looks []int
	for _, asked := range w.asked {
		looks = append(looks, asked.Limit)
	}
	require.Equal(t, []int{limit + 5, 4 * (limit + 5)}, looks[:2], "a first page")
	require.Equal(t, []int{50, 200, 800}, looks[len(looks)-3:], "a page behind others")
	require.Positive(t, takenBack(t, w))
}

// The index is asked with the filter; the truth decides. So a hit whose session belongs to another identity by now,
// or that the filter leaves out, is not shown.
func TestTheTruthDecidesWhatAFilterLets(t *testing.T) {
	t.Parallel()
	ofBob := func(t *services.TrueTurn) { t.IdentityID = "bob" }
	elsewhere := func(t *services.TrueTurn) { t.SessionID = "other" }
	for name, c := range map[string]struct {
		filter projections.SearchFilter
		change func(*services.TrueTurn)
		shown  bool
	}{
		"as it is":            {shown: true},
		"its identity":        {projections.SearchFilter{IdentityID: "ada"}, nil, true},
		"another's by now":    {projections.SearchFilter{IdentityID: "ada"}, ofBob, false},
		"its session":         {projections.SearchFilter{SessionID: "s"}, nil, true},
		"another session":     {projections.SearchFilter{SessionID: "s"}, elsewhere, false},
		"since it":            {projections.SearchFilter{Period: projections.Period{Since: began}}, nil, true},
		"after it":            {projections.SearchFilter{Period: projections.Period{Since: began.Add(1)}}, nil, false},
		"until it":            {projections.SearchFilter{Period: projections.Period{Until: began}}, nil, false},
		"until right behind":  {projections.SearchFilter{Period: projections.Period{Until: began.Add(1)}}, nil, true},
		"neutral":             {projections.SearchFilter{Language: "neutral"}, nil, true},
		"without translation": {projections.SearchFilter{Language: "translated"}, nil, false},
		"near enough":         {projections.SearchFilter{MinScore: 0.5}, nil, true},
		"too far":             {projections.SearchFilter{MinScore: 0.51}, nil, false},
	} {
		w := newWorld(t)
		w.add(0, 0.5, question)
		if c.change != nil {
			turn := w.turns[id(0)]
			c.change(&turn)
			w.turns[id(0)] = turn
		}
		a := ask(services.SearchMeaning, 10)
		c.filter.Query = a.Query
		a.SearchFilter = c.filter
		page := must.Get(w.searcher().Search(t.Context(), a))(t)
		require.Equal(t, c.shown, len(page.Hits) == 1, name)
		require.Equal(t, index.Filter{
			IdentityID: c.filter.IdentityID, SessionID: c.filter.SessionID, Period: c.filter.Period,
		}, w.asked[0].Filter, name)
	}
}

// A hit is what the truth says of its turn. The snippet is of the half that is near, in the language that was asked
// for.
func TestAHitIsTheTruthOfItsTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(3, 1.5, answer)
	w.near[0].SessionID, w.near[0].IdentityID = "stale", "stale"
	w.at[1].Seq, w.heads[0].Seq = 15, 12
	long := strings.Repeat("é", 300)
	w.turns[id(3)].Answer.AnswerNeutral = long
	a := ask(services.SearchMeaning, 10)
	a.Query, a.In = "a query of more than twenty characters", answer
	page := must.Get(w.searcher().Search(t.Context(), a))(t)
	require.Equal(t, services.SearchPage{
		Mode: services.SearchMeaning, Positions: w.at, Lag: 2 + 5,
		Hits: []projections.Hit{{
			SessionID: "s", IdentityID: "ada", TurnID: id(3), Half: answer, CreatedAt: began.Add(3 * time.Second),
			Position: events.Position{Seq: 3}, Score: 1, Snippet: strings.Repeat("é", 200),
		}},
	}, page)
	require.Equal(t, answer, w.asked[0].Half)
	require.Equal(t, []string{"a query of more than"}, w.embedded, "cut as turns are")
	a.Language = "translated"
	require.Equal(t, "réponse 3", must.Get(w.another().Search(t.Context(), a))(t).Hits[0].Snippet)
}

// A hybrid search fuses by rank. Words that have nothing to say leave the meaning alone; tables that fail otherwise
// don't.
func TestHybridFusesByRank(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for n := range 3 {
		w.add(n, 0.9-float64(n)/10, question)
	}
	word := func(n int) projections.Hit {
		return projections.Hit{TurnID: id(n), Snippet: "by words", Score: 0.1, Half: answer}
	}
	w.words.Hits = []projections.Hit{word(1), word(7)}
	a := ask(services.SearchHybrid, 10)
	a.MinScore = 0.49
	a.Cursor = ""
	page := must.Get(w.searcher().Search(t.Context(), a))(t)
	require.Equal(t, services.SearchHybrid, page.Mode)
	require.Equal(t, []int{1, 0, 7}, turnsOf(page.Hits), "1 is in both; 2 is third by meaning only")
	require.InDelta(t, 0.5+0.5*61/62, page.Hits[0].Score, 1e-9)
	require.InDelta(t, 0.5, page.Hits[1].Score, 1e-9)
	require.InDelta(t, 0.5*61/62, page.Hits[2].Score, 1e-9)
	require.Equal(t, "question 1", page.Hits[0].Snippet)
	require.Equal(t, "by words", page.Hits[2].Snippet)
	require.Len(t, w.byWords, 1)
	require.Equal(t, 100, w.byWords[0].Limit)
	require.Zero(t, w.byWords[0].MinScore, "its scores are others")

	for err, mode := range map[error]services.SearchMode{
		&decide.Invalid{Field: "query"}: services.SearchHybrid,
		projections.ErrUnavailable:      services.SearchMeaning,
	} {
		w.wordly, w.words.Hits = err, nil
		page := must.Get(w.another().Search(t.Context(), ask(services.SearchHybrid, 10)))(t)
		require.Equal(t, []int{0, 1, 2}, turnsOf(page.Hits))
		require.Equal(t, mode, page.Mode)
	}
	w.wordly = services.ErrPositionNotReached
	must.Fail(w.another().Search(t.Context(), ask(services.SearchHybrid, 10)))(t, services.ErrPositionNotReached)
}

func TestPagesOfAHybridSearch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for n := range 130 {
		w.add(n, 1-float64(n)/1000, question)
		if n < 60 {
			w.words.Hits = append(w.words.Hits, projections.Hit{TurnID: id(59 - n)})
		}
	}
	s := w.searcher()
	seen := map[int]bool{}
	last := 2.0
	a := ask(services.SearchHybrid, 9)
	for {
		page := must.Get(s.Search(t.Context(), a))(t)
		for i, n := range turnsOf(page.Hits) {
			require.False(t, seen[n], "%d twice", n)
			seen[n] = true
			require.LessOrEqual(t, page.Hits[i].Score, last)
			last = page.Hits[i].Score
		}
		if a.Cursor = page.NextCursor; a.Cursor == "" {
			break
		}
	}
	require.Len(t, seen, 100, "the first hundred of each are fused")
	for _, asked := range w.byWords {
		require.Empty(t, asked.Cursor, "both lists are fused anew for each page")
	}
}

// A cursor is of one mode. One that a search by words has given goes on by words.
func TestACursorIsOfItsMode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for n := range 20 {
		w.add(n, 1-float64(n)/100, question)
	}
	s := w.searcher()
	cursor := func(mode services.SearchMode) string {
		page := must.Get(s.Search(t.Context(), ask(mode, 5)))(t)
		require.NotEmpty(t, page.NextCursor)
		return page.NextCursor
	}
	byMeaning, hybrid := cursor(services.SearchMeaning), cursor(services.SearchHybrid)
	for _, c := range []struct {
		mode   services.SearchMode
		cursor string
	}{
		{services.SearchMeaning, hybrid}, {services.SearchHybrid, byMeaning}, {services.SearchMeaning, "x"},
		{services.SearchHybrid, byMeaning[:5]},
	} {
		a := ask(c.mode, 5)
		a.Cursor = c.cursor
		must.Fail(s.Search(t.Context(), a))(t, decide.ErrInvalid)
	}
	a := ask(services.AnyMode, 5)
	a.Cursor = hybrid
	page := must.Get(s.Search(t.Context(), a))(t)
	require.Equal(t, []int{5, 6, 7, 8, 9}, turnsOf(page.Hits))
	w.byWords = nil
	a.Cursor = "of words"
	require.Equal(t, services.SearchWords, must.Get(s.Search(t.Context(), a))(t).Mode)
	require.Equal(t, "of words", w.byWords[0].Cursor)
	w.index = projections.ErrUnavailable
	a.Cursor = hybrid
	must.Fail(s.Search(t.Context(), a))(t, services.ErrIndex, "its next page is not one by words")
}

// Without the index or the embedder a search that names a mode fails, and says why; one that names none goes by words.
func TestWithoutAnIndex(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		leave func(*world)
		why   error
	}{
		"index":          {func(w *world) { w.index = projections.ErrUnavailable }, projections.ErrUnavailable},
		"embedder":       {func(w *world) { w.embedder = projections.ErrEmbedder }, projections.ErrEmbedder},
		"index hangs":    {func(w *world) { w.indexHangs = true }, projections.ErrUnavailable},
		"embedder hangs": {func(w *world) { w.embedderHangs = true }, projections.ErrEmbedder},
		"other model":    {func(w *world) { w.index = projections.ErrOtherModel }, projections.ErrOtherModel},
		"not open":       {func(w *world) { w.closed = projections.ErrStream }, projections.ErrStream},
	} {
		w := newWorld(t)
		w.add(1, 1, question)
		c.leave(w)
		s := w.searcher()
		for _, mode := range []services.SearchMode{services.SearchMeaning, services.SearchHybrid} {
			_, err := s.Search(t.Context(), ask(mode, 5))
			require.ErrorIs(t, err, services.ErrIndex, name)
			require.ErrorIs(t, err, c.why, name)
		}
		must.Fail(s.Similar(t.Context(), services.SimilarAsk{Question: "q", Limit: 5}))(t, services.ErrIndex, name)
		must.Fail(s.Neighbours(t.Context(), "ada", "q", 5))(t, services.ErrIndex, name)
		page := must.Get(s.Search(t.Context(), ask(services.AnyMode, 5)))(t, name)
		require.Equal(t, services.SearchWords, page.Mode, name)
		require.Equal(t, 5, w.byWords[len(w.byWords)-1].Limit, name)
	}
	w := newWorld(t)
	w.finder = services.ErrBehind
	for _, mode := range []services.SearchMode{services.AnyMode, services.SearchMeaning} {
		w.add(1, 1, question)
		_, err := w.another().Search(t.Context(), ask(mode, 5))
		require.ErrorIs(t, err, services.ErrBehind, "the truth is missing, and not the index")
		require.NotErrorIs(t, err, services.ErrIndex)
	}
	w.embedder = context.Canceled
	_, err := w.another().Search(t.Context(), ask(services.SearchMeaning, 5))
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, services.ErrIndex, "the caller has gone")
}

func TestWhereNoIndexIsConfigured(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.bare()
	_, err := s.Search(t.Context(), ask(services.SearchMeaning, 5))
	require.ErrorIs(t, err, services.ErrIndex)
	require.ErrorIs(t, err, services.ErrNoIndex)
	require.Equal(t, services.SearchWords, must.Get(s.Search(t.Context(), ask(services.AnyMode, 5)))(t).Mode)
	w.wordly = errors.New("refused")
	must.Fail(s.Search(t.Context(), ask(services.SearchWords, 5)))(t, w.wordly)
}

// Similar turns are found by their questions only, and are shown whole.
func TestSimilarAndNeighbours(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for n := range 5 {
		w.add(n, 0.9-float64(n)/10, question)
	}
	delete(w.turns, id(0))
	s := w.searcher()
	asked := services.SimilarAsk{Question: "q", IdentityID: "ada", Limit: 2, MinScore: 0.5}
	hits := must.Get(s.Similar(t.Context(), asked))(t)
	require.Len(t, hits, 2)
	require.Equal(t, id(1), hits[0].TurnID)
	require.Equal(t, "question 1", hits[0].Question)
	require.Equal(t, "answer 1", hits[0].Answer)
	require.Equal(t, question, w.asked[0].Half)
	require.Equal(t, "ada", w.asked[0].IdentityID)
	hits = must.Get(s.Similar(t.Context(), services.SimilarAsk{Question: "q", Limit: 10, MinScore: 0.65}))(t)
	require.Len(t, hits, 2)

	require.Len(t, must.Get(s.Neighbours(t.Context(), "ada", "q", 3))(t), 3)
	last := w.asked[len(w.asked)-1]
	require.Empty(t, last.Half, "both halves")
	require.Equal(t, "ada", last.IdentityID)
	turn := w.turns[id(1)]
	turn.IdentityID = "bob"
	w.turns[id(1)] = turn
	hits = must.Get(s.Neighbours(t.Context(), "ada", "q", 3))(t)
	require.Equal(t, id(2), hits[0].TurnID, "1 is another's by now")
}

// Turns that say the same have the same score, and the index returns any of them. Each comes once over all pages, also
// those that are less near than nothing, whose score is shown as 0.
func TestPagesOfTurnsThatAreAlike(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shuffled = true
	var want []int
	for n := range 230 {
		w.add(n, 0.5-float64(n/90)/2, question)
		want = append(want, n)
	}
	s := w.searcher()
	for _, limit := range []int{2, 30, 100} {
		var got []int
		for a := ask(services.SearchMeaning, limit); ; {
			page := must.Get(s.Search(t.Context(), a))(t)
			for _, h := range page.Hits {
				require.GreaterOrEqual(t, h.Score, 0.0)
			}
			got = append(got, turnsOf(page.Hits)...)
			if a.Cursor = page.NextCursor; a.Cursor == "" {
				break
			}
			require.Len(t, page.Hits, limit)
		}
		require.Equal(t, want, got, "pages of %d", limit)
	}
}

// A turn whose nearer half lacks a language is found by the other half, once over all pages.
func TestATurnIsFoundByTheHalfOfTheLanguage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const turns = 60
	for n := range turns { // the questions are nearer than all answers; the answers alone have translations
		w.add(n, 1-float64(n)/1000, question)
	}
	for n := range turns {
		h := w.near[n]
		h.Half, h.Score = answer, h.Score/2
		w.near = append(w.near, h)
	}
	s := w.searcher()
	a := ask(services.SearchMeaning, 7)
	for _, language := range []string{"translated", "neutral"} {
		a.Language, a.Cursor = language, ""
		half := map[string]projections.Half{"translated": answer, "neutral": question}[language]
		var got []int
		for {
			page := must.Get(s.Search(t.Context(), a))(t)
			for _, h := range page.Hits {
				require.Equal(t, half, h.Half)
			}
			got = append(got, turnsOf(page.Hits)...)
			if a.Cursor = page.NextCursor; a.Cursor == "" {
				break
			}
		}
		var all []int
		for n := range turns {
			all = append(all, n)
		}
		require.Equal(t, all, got, language)
	}
}

// An answer is at least as new as the caller asks: the log has to hold the positions, and the index to have applied
// them. A search that names no mode goes by words where the index is not that far in time.
func TestAnAnswerIsAtLeastAsNewAsAsked(t *testing.T) {
	t.Parallel()
	calls := map[string]func(*world, ...events.Position) error{}
	for _, mode := range []services.SearchMode{services.SearchMeaning, services.SearchHybrid} {
		calls[string(mode)] = func(w *world, least ...events.Position) error {
			a := ask(mode, 5)
			a.MinPosition = least
			_, err := w.another().Search(t.Context(), a)
			return err
		}
	}
	calls["similar"] = func(w *world, least ...events.Position) error {
		_, err := w.another().Similar(t.Context(), services.SimilarAsk{Question: "q", Limit: 5, MinPosition: least})
		return err
	}
	for name, call := range calls {
		w := newWorld(t)
		w.add(1, 1, question)
		require.NoError(t, call(w, events.Position{Seq: 10}, events.Position{Partition: 1, Seq: 20}), name)
		for _, p := range []events.Position{{Partition: 1, Seq: 21}, {Partition: 2, Seq: 1}} {
			err := call(w, p)
			require.ErrorIs(t, err, services.ErrPositionNotReached, name)
			require.NotErrorIs(t, err, services.ErrIndex, name)
		}
		w.at = []events.Position{{Partition: 0, Seq: 10}, {Partition: 1, Seq: 19}}
		err := call(w, events.Position{Partition: 1, Seq: 20})
		require.ErrorIs(t, err, services.ErrIndex, name)
		require.ErrorContains(t, err, "1:20", name)
		require.NoError(t, call(w, events.Position{Partition: 1, Seq: 19}), name)
		require.NoError(t, call(w), name)
		w.still = true
		require.NoError(t, call(w, events.Position{Partition: 1, Seq: 20}), "what was erased never comes")
		w.still = false
		w.grow = func() {
			w.heads = []events.Position{{Partition: 0, Seq: 10}, {Partition: 1, Seq: w.heads[1].Seq + 1}}
			w.at = []events.Position{{Partition: 0, Seq: 10}, {Partition: 1, Seq: w.at[1].Seq + 1}}
		}
		require.NoError(t, call(w, events.Position{Partition: 1, Seq: 23}), "it waits")
		w.grow, w.index = nil, projections.ErrUnavailable
		require.ErrorIs(t, call(w, events.Position{Seq: 1}), services.ErrIndex, name)
	}
	w := newWorld(t)
	w.at[1].Seq--
	a := ask(services.AnyMode, 5)
	a.MinPosition = []events.Position{{Partition: 1, Seq: 20}}
	require.Equal(t, services.SearchWords, must.Get(w.another().Search(t.Context(), a))(t).Mode)
	require.Equal(t, a.MinPosition, w.byWords[0].MinPosition)
}

// A turn that says just what is asked is first, though the words rank newer ones only, and though others are nearer.
func TestAVerbatimTurnIsFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for n := range 60 {
		w.add(n, 1-float64(n)/100, question)
		if n < 40 {
			w.words.Hits = append(w.words.Hits, projections.Hit{TurnID: id(n)})
		}
	}
	w.turns[id(50)].Question.QuestionNeutral = "Où est\tLa gare ?"
	w.turns[id(55)].Question.QuestionTranslated = "Ou\u0300 est la gare!"
	w.turns[id(57)].Question.QuestionNeutral = "Où est la gare de Lyon ?"
	w.words.Hits = append(w.words.Hits, projections.Hit{TurnID: id(200), Half: question, Snippet: "Où est la gare ?"})
	s := w.searcher()
	for query, first := range map[string][]int{
		"où est la gare": {50, 55, 200, 0}, "où est la gare -lyon": {0, 1, 2, 3}, "?!": {0, 1, 2, 3},
	} {
		a := ask(services.SearchHybrid, 61)
		a.Query = query
		page := must.Get(s.Search(t.Context(), a))(t)
		got := turnsOf(page.Hits)
		require.Len(t, got, 61, "none twice")
		require.Equal(t, first, got[:4], query)
		require.Contains(t, got[40:], 57, query)
	}
}
