package weaviate_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/indextest"
	weaviatetest "github.com/turnledger/turnledger/deploy/testkit/weaviate"
	"github.com/turnledger/turnledger/projections/index"
	"github.com/turnledger/turnledger/projections/index/weaviate"
)

// Beside the vectors as they are, which the contract asks for, a collection has rounded ones that a search looks at
// first. These are rounded as the index wants it, also where a server is set to round those of new collections in
// another way.
func TestVectorsAreRoundedAsTheIndexWants(t *testing.T) {
	t.Parallel()
	s := weaviatetest.StartWith(t, rand.Text(), "DEFAULT_QUANTIZATION=bq")
	w := s.Client()
	name, _ := indextest.FourObjects(t, w.Store())
	var made struct {
		VectorConfig map[string]struct {
			VectorIndexType   string
			VectorIndexConfig map[string]any
		}
	}
	require.NoError(t, json.Unmarshal([]byte(getPath(t, s, "/v1/schema/"+name)), &made))
	require.Len(t, made.VectorConfig, 2)
	for half, c := range made.VectorConfig {
		require.Equal(t, "flat", c.VectorIndexType)
		for _, rounding := range []string{"rq", "bq", "pq", "sq"} {
			of, there := c.VectorIndexConfig[rounding].(map[string]any)
			require.Equal(t, rounding == "rq", there && of["enabled"] == true, "%s by %s", half, rounding)
			require.Equal(t, rounding == "rq", there && of["cache"] == true, "%s by %s", half, rounding)
		}
	}
}

// get returns what an outsider reads of an object by REST.
func get(t *testing.T, s *weaviatetest.Server, collection string, id uuid.UUID) string {
	t.Helper()
	return getPath(t, s, "/v1/objects/"+collection+"/"+id.String())
}

func getPath(t *testing.T, s *weaviatetest.Server, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+path, nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+s.Key())
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s", raw)
	return string(raw)
}

// Texts are in Weaviate for those who read it themselves, unless they are kept out. Then no file holds them.
func TestTextsAreKeptOutOfWeaviate(t *testing.T) {
	t.Parallel()
	for _, without := range []bool{false, true} {
		s := weaviatetest.Start(t)
		cfg := s.Config()
		cfg.WithoutTexts = without
		w, err := weaviate.New(cfg)
		require.NoError(t, err)
		t.Cleanup(w.Close)
		name, ids := indextest.FourObjects(t, w.Store())
		require.NoError(t, w.Serve(t.Context(), name))
		shown := get(t, s, index.Alias, ids[0])
		require.Contains(t, shown, `"session_id":"a1"`)
		for _, text := range []string{"question number 0", "une question", "une r", `"yes"`} {
			require.Equal(t, !without, strings.Contains(shown, text), text)
		}
	}
}

// A text that is no UTF-8 is written with replacements, as it would be shown, and holds nothing up.
func TestTextsThatAreNoUTF8AreWritten(t *testing.T) {
	t.Parallel()
	s := weaviatetest.Start(t)
	w := s.Client()
	name, _ := indextest.FourObjects(t, w.Store())
	o := indextest.Object(9, "ann")
	o.Question.Neutral = string(bytes.Repeat([]byte{0xff}, 3)) + " cut"
	require.NoError(t, w.Put(t.Context(), name, []index.Object{o}))
	require.Contains(t, get(t, s, name, o.ID), "\uFFFD cut")
}
