package search_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
)

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
