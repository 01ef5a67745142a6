package weaviate_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/indextest"
	weaviatetest "github.com/turnledger/turnledger/deploy/testkit/weaviate"
	"github.com/turnledger/turnledger/projections/index"
)

func TestWeaviateIsAnIndex(t *testing.T) {
	server := weaviatetest.Start(t)
	logs := 8
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		logs = 200
	}
	indextest.Run(t, logs, func(t testing.TB) index.Store {
		w := server.Client()
		all, err := w.List(t.Context())
		require.NoError(t, err)
		for _, c := range all {
			require.NoError(t, w.Drop(t.Context(), c.Name))
		}
		return w.Store()
	})
}
