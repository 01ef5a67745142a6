package search_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
)

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
