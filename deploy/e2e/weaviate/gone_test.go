package weaviate_test

import (
	"encoding/binary"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	pb "github.com/weaviate/weaviate/grpc/generated/protocol/v1"

	"github.com/turnledger/turnledger/deploy/testkit/indextest"
	weaviatetest "github.com/turnledger/turnledger/deploy/testkit/weaviate"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
)

// Objects that are deleted while they are written leave their vectors behind, which take the first places of Weaviate's
// answer and shift the distances of the others. An answer of the index has them not.
func TestVectorsOfGoneObjectsTakeNoPlace(t *testing.T) {
	t.Parallel()
	const live, batch = 30, 500
	s := weaviatetest.Start(t)
	w := s.Client()
	c := index.Collection{Name: index.Prefix + "g_000001", Mark: "the mark"}
	require.NoError(t, w.Create(t.Context(), c))
	objects := map[uuid.UUID]index.Object{}
	for i := range live {
		o := indextest.Object(i, "ann")
		objects[o.ID] = o
		require.NoError(t, w.Put(t.Context(), c.Name, []index.Object{o}))
	}
	asked := indextest.Object(live, "ann").Question.Vector
	raw := rawNearest(t, s)
	for round := 0; raw(c.Name, asked, live) == live; round++ {
		require.Less(t, round, 100, "no vector is left behind: Weaviate may be mended")
		late, ids := make([]index.Object, batch), make([]uuid.UUID, batch)
		for i := range late {
			late[i], ids[i] = indextest.Object(live+i, "ann"), uuid.New()
			late[i].ID, late[i].Question.Vector = ids[i], asked
		}
		var written atomic.Bool
		done := make(chan error, 1)
		go func() {
			done <- w.Put(t.Context(), c.Name, late)
			written.Store(true)
		}()
		for last := false; !last; {
			last = written.Load()
			require.NoError(t, w.Delete(t.Context(), c.Name, ids))
		}
		require.NoError(t, <-done)
	}
	page, err := w.Page(t.Context(), c.Name, uuid.Nil, 2*live)
	require.NoError(t, err)
	require.Len(t, page, live)
	for _, limit := range []int{1, live, 2 * live} {
		hits, err := w.Near(t.Context(), c.Name, index.Near{
			Half: projections.QuestionHalf, Vector: asked, Limit: limit,
		})
		require.NoError(t, err)
		require.Len(t, hits, min(limit, live))
		for _, h := range hits {
			require.InDelta(t, cosine(objects[h.TurnID].Question.Vector, asked), h.Score, 1e-5)
		}
	}
}

func cosine(a, b []float32) (sum float64) {
	for k, x := range a {
		sum += float64(x * b[k])
	}
	return sum
}

// rawNearest returns a function that returns how many objects Weaviate itself finds near to a vector.
func rawNearest(t *testing.T, s *weaviatetest.Server) func(collection string, vector []float32, limit int) int {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+s.GRPC(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	api := pb.NewWeaviateClient(conn)
	return func(collection string, vector []float32, limit int) int {
		raw, err := binary.Append(nil, binary.LittleEndian, vector)
		require.NoError(t, err)
		reply, err := api.Search(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+s.Key()),
			&pb.SearchRequest{
				Collection: collection, Limit: uint32(limit), Uses_127Api: true,
				Metadata: &pb.MetadataRequest{Uuid: true, Distance: true},
				NearVector: &pb.NearVector{
					Targets: &pb.Targets{TargetVectors: []string{"question"}},
					Vectors: []*pb.Vectors{{
						Name: "question", VectorBytes: raw, Type: pb.Vectors_VECTOR_TYPE_SINGLE_FP32,
					}},
				},
			})
		require.NoError(t, err)
		return len(reply.GetResults())
	}
}
