package weaviate_test

import (
	"cmp"
	crand "crypto/rand"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/indextest"
	weaviatetest "github.com/turnledger/turnledger/deploy/testkit/weaviate"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
)

// A search finds the ten nearest of vectors of which each is far from all others, also after the server was
// killed and has read its files, after more were written, and others were deleted.
func TestASearchMissesNothing(t *testing.T) {
	t.Parallel()
	const objects, few, asked, most, length = 4000, 500, 100, 10, 64
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
	s := weaviatetest.StartWith(t, crand.Text(), "PERSISTENCE_MEMTABLES_FLUSH_DIRTY_AFTER_SECONDS=1")
	w := s.Client()
	c := index.Collection{Name: index.Prefix + "x_000001", Mark: "the mark"}
	require.NoError(t, w.Create(t.Context(), c))
	all := make([]index.Object, objects)
	for i := range all {
		all[i] = indextest.Object(i, fmt.Sprint("identity ", i))
		all[i].ID, all[i].Question.Vector, all[i].Answer = uuid.New(), random(), index.Half{}
	}
	there, later := all[:objects-few], all[objects-few:]
	require.NoError(t, w.Put(t.Context(), c.Name, there))
	for i := range asked {
		if i == asked/2 {
			mark := index.Object{ID: uuid.New(), Partition: 1} // it takes what was written before it to the files
			require.NoError(t, w.Put(t.Context(), c.Name, []index.Object{mark}))
			hang.Until(t, func() bool {
				segments := filepath.Join(s.Dir(), "*", "*", "lsm", "vectors_compressed_question", "*.db")
				found, err := filepath.Glob(segments)
				return err == nil && len(found) > 0
			})
			s.Restart()
			require.NoError(t, w.Put(t.Context(), c.Name, later))
			var gone []uuid.UUID
			for _, o := range there[:few] {
				gone = append(gone, o.ID)
			}
			require.NoError(t, w.Delete(t.Context(), c.Name, gone))
			there = all[few:]
		}
		n := index.Near{Half: projections.QuestionHalf, Vector: random(), Limit: most}
		nearness := func(o *index.Object) (sum float64) {
			for k, x := range o.Question.Vector {
				sum += float64(x * n.Vector[k])
			}
			return sum
		}
		slices.SortFunc(there, func(a, b index.Object) int { return cmp.Compare(nearness(&b), nearness(&a)) })
		hits, err := w.Near(t.Context(), c.Name, n)
		require.NoError(t, err)
		require.Len(t, hits, most)
		for i, h := range hits {
			require.InDelta(t, nearness(&there[i]), h.Score, 1e-5, "neighbour %d", i)
		}
	}
}
