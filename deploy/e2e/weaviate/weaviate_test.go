package weaviate_test

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/indextest"
	weaviatetest "github.com/turnledger/turnledger/deploy/testkit/weaviate"
	"github.com/turnledger/turnledger/projections/index"
)

// A link brings all turns of a session at once. Their texts may be more than Weaviate takes in a message.
func TestObjectsWithLongTextsAreWritten(t *testing.T) {
	t.Parallel()
	w := weaviatetest.StartWith(t, rand.Text(), "GRPC_MAX_MESSAGE_SIZE=20000000").Client()
	c := index.Collection{Name: index.Prefix + "a_000001", Mark: "the mark"}
	require.NoError(t, w.Create(t.Context(), c))
	long := strings.Repeat("many words ", 90_000)
	var objects []index.Object
	for i := range 12 {
		o := indextest.Object(i, "ann")
		o.Question.Neutral, o.Answer.Translated = long, long
		objects = append(objects, o)
	}
	require.NoError(t, w.Put(t.Context(), c.Name, objects))
	page, err := w.Page(t.Context(), c.Name, uuid.Nil, 100)
	require.NoError(t, err)
	require.Len(t, page, len(objects))
}
