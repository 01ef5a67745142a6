package recall

import (
	"cmp"
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services"
)

// Neighbours finds the turns of an identity that are near in meaning to a text, as they are now. The Searcher of
// package meaning implements it.
type Neighbours interface {
	Neighbours(ctx context.Context, identityID, text string, limit int) ([]services.SimilarHit, error)
}

// Meaning is a memory over the index of meanings. It knows identities only, and no anonymous session.
type Meaning struct{ Turns Neighbours }

var _ Searcher = Meaning{}

// Search implements Searcher. There is always a nearest turn, also to a message that no turn is about. So turns that
// are less than half as near as the nearest one are left out.
func (m Meaning) Search(ctx context.Context, scope Scoped, query string, limit int) (out []Found, _ error) {
	if scope.IdentityID == "" {
		return nil, nil
	}
	hits, err := m.Turns.Neighbours(ctx, scope.IdentityID, query, limit)
	for _, h := range hits {
		if h.Score > 0 && h.Score >= hits[0].Score/2 {
			out = append(out, Found{TurnID: h.TurnID, Text: dialogue(h.Question, h.Answer)})
		}
	}
	return out, err
}

// fuse fuses lists of turns by rank.
func fuse(lists ...[]Found) (out []Found) {
	ids := make([][]uuid.UUID, len(lists))
	seen := map[uuid.UUID]bool{}
	for i, list := range lists {
		for _, f := range list {
			ids[i] = append(ids[i], f.TurnID)
			if !seen[f.TurnID] {
				seen[f.TurnID] = true
				out = append(out, f)
			}
		}
	}
	scores := projections.FusedScores(ids...)
	slices.SortStableFunc(out, func(a, b Found) int { return cmp.Compare(scores[b.TurnID], scores[a.TurnID]) })
	return out
}
