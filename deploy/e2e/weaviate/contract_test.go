package weaviate_test

import (
	"crypto/rand"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/indextest"
	weaviatetest "github.com/turnledger/turnledger/deploy/testkit/weaviate"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
)

// One server serves all cases, one after the other. It is set to round vectors in another way than the index wants.
func TestWeaviateKeepsTheContractOfAnIndex(t *testing.T) {
	t.Parallel()
	server := weaviatetest.StartWith(t, rand.Text(), "DEFAULT_QUANTIZATION=bq")
	indextest.Contract(t, emptied(server))
	w := server.Client()
	server.Kill()
	_, err := w.List(t.Context())
	require.ErrorIs(t, err, projections.ErrUnavailable)
	_, err = w.Page(t.Context(), index.Alias, [16]byte{}, 1)
	require.ErrorIs(t, err, projections.ErrUnavailable)
}

// The property of the index, of which the store in memory sees more logs.
func TestRandomLogsGetIntoWeaviate(t *testing.T) {
	t.Parallel()
	logs := 1
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		logs = 200
	}
	indextest.Property(t, logs, emptied(weaviatetest.Start(t)))
}

// emptied returns the store of a server each time without the index's collections.
func emptied(server *weaviatetest.Server) func(testing.TB) index.Store {
	return func(t testing.TB) index.Store {
		t.Helper()
		w := server.Client()
		all, err := w.List(t.Context())
		require.NoError(t, err)
		for _, c := range all {
			require.NoError(t, w.Drop(t.Context(), c.Name))
		}
		return w.Store()
	}
}
