package search_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/services"
)

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
