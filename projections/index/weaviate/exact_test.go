package weaviate_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
	"github.com/turnledger/turnledger/projections/index/weaviate/weaviatetest"
)

// An exact search finds the ten nearest of vectors of which each is far from all others. By the graph alone some are
// missed.
func TestAnExactSearchMissesNothing(t *testing.T) {
	t.Parallel()
	const objects, asked, most, length = 4000, 100, 10, 64
	rng := rand.New(rand.NewPCG(1, 2))
	random := func() []float32 {
		v, sum := make([]float32, length), 0.0
		for k := range v {
			v[k] = float32(rng.NormFloat64())
			sum += float64(v[k] * v[k])
		}
		for k := range v {
			v[k] /= float32(math.Sqrt(sum))
		}
		return v
	}
	w := weaviatetest.Start(t).Client()
	c := index.Collection{Name: index.Prefix + "x_000001", Mark: "the mark"}
	require.NoError(t, w.Create(t.Context(), c))
	all := make([]index.Object, objects)
	for i := range all {
		all[i] = object(i, fmt.Sprint("identity ", i))
		all[i].ID, all[i].Question.Vector, all[i].Answer = uuid.New(), random(), index.Half{}
	}
	require.NoError(t, w.Put(t.Context(), c.Name, all))
	for range asked {
		n := index.Near{Half: projections.QuestionHalf, Vector: random(), Limit: most, Exact: true}
		nearness := func(o *index.Object) (sum float64) {
			for k, x := range o.Question.Vector {
				sum += float64(x * n.Vector[k])
			}
			return sum
		}
		slices.SortFunc(all, func(a, b index.Object) int { return cmp.Compare(nearness(&b), nearness(&a)) })
		hits, err := w.Near(t.Context(), c.Name, n)
		require.NoError(t, err)
		require.Len(t, hits, most)
		for i, h := range hits {
			require.InDelta(t, nearness(&all[i]), h.Score, 1e-5, "neighbour %d", i)
		}
	}
}
