package weaviate_test

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/embeddingstest"
	weaviatetest "github.com/turnledger/turnledger/deploy/testkit/weaviate"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
)

func object(i int, identity string) index.Object {
	text := fmt.Sprintf("question number %d about %s", i, []string{"cats", "dogs", "taxes"}[i%3])
	return index.Object{
		ID:      uuid.NewSHA1(uuid.NameSpaceOID, []byte(text)),
		Session: fmt.Sprintf("s%d", i%7), Identity: identity,
		Partition: i % 2, StartSeq: uint64(i + 1), Version: 1, CreatedAt: time.Unix(int64(1000+i), 12345).UTC(),
		Question: index.Half{
			Neutral: text, Digest: fmt.Sprint("q", i), Vector: embeddingstest.Vector(text, 64),
		},
		Answer: index.Half{
			Neutral: "yes", Digest: fmt.Sprint("a", i), Vector: embeddingstest.Vector("yes "+text, 64),
		},
		Written: index.Written{Epoch: uint64(1 + i%3), Seq: uint64(i + 2)},
	}
}

// A link brings all turns of a session at once. Their texts may be more than Weaviate takes in a message.
func TestObjectsWithLongTextsAreWritten(t *testing.T) {
	t.Parallel()
	w := weaviatetest.StartWith(t, rand.Text(), "GRPC_MAX_MESSAGE_SIZE=20000000").Client()
	c := index.Collection{Name: index.Prefix + "a_000001", Mark: "the mark"}
	require.NoError(t, w.Create(t.Context(), c))
	long := strings.Repeat("many words ", 90_000)
	var objects []index.Object
	for i := range 12 {
		o := object(i, "ann")
		o.Question.Neutral, o.Answer.Translated = long, long
		objects = append(objects, o)
	}
	require.NoError(t, w.Put(t.Context(), c.Name, objects))
	page, err := w.Page(t.Context(), c.Name, uuid.Nil, 100)
	require.NoError(t, err)
	require.Len(t, page, len(objects))
}

func TestObjectsInCollections(t *testing.T) {
	t.Parallel()
	s := weaviatetest.Start(t)
	w := s.Client()
	c := index.Collection{Name: index.Prefix + "a_000001", Mark: "the mark"}
	require.NoError(t, w.Create(t.Context(), c))
	require.NoError(t, w.Serve(t.Context(), c.Name))
	all, err := w.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []index.Collection{c}, all)

	var objects []index.Object
	for i := range 1200 {
		objects = append(objects, object(i, "ann"))
	}
	bare := object(1, "ann")
	bare.Answer.Vector, bare.ID = nil, uuid.New()
	began := time.Now()
	require.NoError(t, w.Put(t.Context(), c.Name, append(objects, bare)))
	t.Log("put", time.Since(began))

	some := []uuid.UUID{objects[7].ID, objects[900].ID, uuid.New()}
	got, err := w.ByID(t.Context(), c.Name, some, index.WithVectors)
	require.NoError(t, err)
	require.Len(t, got, 2)
	for _, o := range got {
		want := objects[o.StartSeq-1]
		want.Question.Neutral, want.Answer.Neutral = "", ""
		require.InDeltaSlice(t, want.Question.Vector, o.Question.Vector, 1e-6)
		want.Question.Vector, want.Answer.Vector, o.Question.Vector, o.Answer.Vector = nil, nil, nil, nil
		require.Equal(t, want, o)
	}

	near, err := w.Near(t.Context(), index.Alias, index.Near{
		Half: projections.QuestionHalf, Vector: objects[42].Question.Vector, Limit: 3, Filter: index.Filter{
			IdentityID: "ann", SessionID: objects[42].Session,
			Period: projections.Period{Since: objects[42].CreatedAt, Until: objects[42].CreatedAt.Add(1)},
		},
	})
	require.NoError(t, err)
	require.Len(t, near, 1)
	require.Equal(t, objects[42].ID, near[0].TurnID)
	require.InDelta(t, 1, near[0].Score, 1e-5)

	late, err := w.Late(t.Context(), c.Name, index.Late{Partition: 1, Written: index.Written{Epoch: 1, Seq: 1190}}, 100)
	require.NoError(t, err)
	require.Len(t, late, 2)
	late, err = w.Late(t.Context(), c.Name, index.Late{Partition: 1, Written: index.Written{Epoch: 1, Seq: 1193}}, 100)
	require.NoError(t, err)
	require.Len(t, late, 1, "not the one of this event")
	waiting, err := w.Bare(t.Context(), c.Name, 1, 10)
	require.NoError(t, err)
	require.Len(t, waiting, 1)
	require.Equal(t, bare.ID, waiting[0].ID)
	waiting, err = w.Bare(t.Context(), c.Name, 0, 10)
	require.NoError(t, err)
	require.Empty(t, waiting, "of another partition")

	seen := map[uuid.UUID]bool{}
	for after := uuid.Nil; ; {
		page, err := w.Page(t.Context(), c.Name, after, 500)
		require.NoError(t, err)
		for _, o := range page {
			seen[o.ID], after = true, o.ID
		}
		if len(page) < 500 {
			break
		}
	}
	require.Len(t, seen, 1201)

	require.NoError(t, w.Delete(t.Context(), c.Name, []uuid.UUID{objects[43].ID, uuid.New()}, objects[43].Epoch-1))
	got, err = w.ByID(t.Context(), c.Name, []uuid.UUID{objects[43].ID}, index.WithoutVectors)
	require.NoError(t, err)
	require.Len(t, got, 1, "a later epoch has written it")
	require.NoError(t, w.Delete(t.Context(), c.Name, []uuid.UUID{objects[42].ID, uuid.New()}, objects[42].Epoch))
	got, err = w.ByID(t.Context(), c.Name, []uuid.UUID{objects[42].ID}, index.WithoutVectors)
	require.NoError(t, err)
	require.Empty(t, got)
	ids := []uuid.UUID{bare.ID}
	for _, o := range objects {
		ids = append(ids, o.ID)
	}
	got, err = w.ByID(t.Context(), c.Name, ids, index.WithoutVectors)
	require.NoError(t, err)
	require.Len(t, got, 1200, "all calls' objects")
	require.NoError(t, w.Delete(t.Context(), c.Name, ids, 3))
	got, err = w.Page(t.Context(), c.Name, uuid.Nil, 10)
	require.NoError(t, err)
	require.Empty(t, got)
	require.NoError(t, w.Drop(t.Context(), c.Name))
	require.NoError(t, w.Drop(t.Context(), c.Name))
	s.Kill()
	_, err = w.Page(t.Context(), c.Name, uuid.Nil, 1)
	require.ErrorIs(t, err, projections.ErrUnavailable)
}
