package audit

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/projections/audit/lexicon"
	"github.com/turnledger/turnledger/projections/audit/words"
)

// A search whose caller has gone matches no further texts.
func TestRankEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := search{Audit: &Audit{lexicon: lexicon.New(lexicon.Simple)}, query: words.Parse("a", nil)}
	turns := []foundTurn{{question: [2]string{"a"}}}
	w := must.Get(parseWindow(""))(t)
	require.Len(t, must.Get(s.rank(t.Context(), turns, w))(t), 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must.Fail(s.rank(ctx, turns, w))(t, context.Canceled)
}
