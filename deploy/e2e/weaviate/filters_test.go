package weaviate_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/embeddingstest"
	weaviatetest "github.com/turnledger/turnledger/deploy/testkit/weaviate"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
	"github.com/turnledger/turnledger/projections/index/weaviate"
)

// created is the time of the first object of collectionOfFour.
var created = time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)

// collectionOfFour has objects of two identities and two sessions each, a second apart.
func collectionOfFour(t *testing.T, w *weaviate.Weaviate) (name string, ids []uuid.UUID) {
	t.Helper()
	c := index.Collection{Name: index.Prefix + "f_000001", Mark: "the mark"}
	require.NoError(t, w.Create(t.Context(), c))
	var objects []index.Object
	for i, of := range [][2]string{{"ann", "a1"}, {"ann", "a2"}, {"bob", "b1"}, {"bob", "b2"}} {
		o := object(i, of[0])
		o.Session, o.CreatedAt = of[1], created.Add(time.Duration(i)*time.Second)
		o.Question.Translated, o.Answer.Translated = "une question", "une réponse"
		objects, ids = append(objects, o), append(ids, o.ID)
	}
	require.NoError(t, w.Put(t.Context(), c.Name, objects))
	return c.Name, ids
}

// Each filter bounds a search by itself: a period begins with its first moment, and ends before its last.
func TestFiltersBoundASearch(t *testing.T) {
	t.Parallel()
	w := weaviatetest.Start(t).Client()
	name, ids := collectionOfFour(t, w)
	second := created.Add(time.Second)
	for what, c := range map[string]struct {
		filter index.Filter
		want   []uuid.UUID
	}{
		"none":                {want: ids},
		"identity":            {index.Filter{IdentityID: "ann"}, ids[:2]},
		"session":             {index.Filter{SessionID: "b1"}, ids[2:3]},
		"since":               {index.Filter{Period: projections.Period{Since: second}}, ids[1:]},
		"since right behind":  {index.Filter{Period: projections.Period{Since: second.Add(1)}}, ids[2:]},
		"until":               {index.Filter{Period: projections.Period{Until: second}}, ids[:1]},
		"until right behind":  {index.Filter{Period: projections.Period{Until: second.Add(1)}}, ids[:2]},
		"another's session":   {index.Filter{IdentityID: "ann", SessionID: "b1"}, nil},
		"identity in a while": {index.Filter{IdentityID: "bob", Period: projections.Period{Until: created}}, nil},
	} {
		near, err := w.Near(t.Context(), name, index.Near{
			Half: projections.QuestionHalf, Vector: embeddingstest.Vector("question", 64), Filter: c.filter, Limit: 10,
		})
		require.NoError(t, err, what)
		var got []uuid.UUID
		for _, h := range near {
			got = append(got, h.TurnID)
		}
		require.ElementsMatch(t, c.want, got, what)
	}
}

// The score is the cosine, of the half that was asked for.
func TestTheScoreIsTheCosineOfAHalf(t *testing.T) {
	t.Parallel()
	w := weaviatetest.Start(t).Client()
	name, ids := collectionOfFour(t, w)
	texts := map[projections.Half]string{
		projections.QuestionHalf: object(0, "").Question.Neutral,
		projections.AnswerHalf:   "yes " + object(0, "").Question.Neutral,
	}
	v := embeddingstest.Vector("number cats yes", 64)
	for half, text := range texts {
		want := 0.0
		for i, x := range embeddingstest.Vector(text, 64) {
			want += float64(x) * float64(v[i])
		}
		near, err := w.Near(t.Context(), name, index.Near{Half: half, Vector: v, Limit: 10})
		require.NoError(t, err)
		require.Len(t, near, 4)
		for i, h := range near {
			require.Equal(t, half, h.Half)
			if h.TurnID == ids[0] {
				require.InDelta(t, want, h.Score, 1e-5, half)
			}
			if i > 0 {
				require.LessOrEqual(t, h.Score, near[i-1].Score, "the nearest first")
			}
		}
	}
}

// Vectors are kept as they are, beside the rounded ones that a search looks at first; and these are rounded as the
// index wants it, also where a server is set to round those of new collections in another way.
func TestVectorsAreKeptAsTheyAre(t *testing.T) {
	t.Parallel()
	s := weaviatetest.StartWith(t, rand.Text(), "DEFAULT_QUANTIZATION=bq")
	w := s.Client()
	name, ids := collectionOfFour(t, w)
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
	kept, err := w.ByID(t.Context(), name, ids, index.WithVectors)
	require.NoError(t, err)
	require.Len(t, kept, len(ids))
	for _, k := range kept {
		was := object(slices.Index(ids, k.ID), "")
		require.Equal(t, was.Question.Vector, k.Question.Vector)
		require.Equal(t, was.Answer.Vector, k.Answer.Vector)
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
		name, ids := collectionOfFour(t, w)
		require.NoError(t, w.Serve(t.Context(), name))
		shown := get(t, s, index.Alias, ids[0])
		require.Contains(t, shown, `"session_id":"a1"`)
		for _, text := range []string{"question number 0", "une question", "une r", `"yes"`} {
			require.Equal(t, !without, strings.Contains(shown, text), text)
		}
	}
}

// The alias follows the generation that is served. Collections of others in the same Weaviate are none of the index.
func TestTheAliasFollowsTheServedCollection(t *testing.T) {
	t.Parallel()
	s := weaviatetest.Start(t)
	w := s.Client()
	first, ids := collectionOfFour(t, w)
	second := index.Collection{Name: index.Prefix + "f_000002", Mark: "the second"}
	require.NoError(t, w.Create(t.Context(), second))
	require.NoError(t, w.Create(t.Context(), index.Collection{Name: "Foreign", Mark: "of somebody else"}))
	require.NoError(t, w.Serve(t.Context(), first))
	require.NotEmpty(t, get(t, s, index.Alias, ids[0]))
	require.NoError(t, w.Serve(t.Context(), second.Name))
	page, err := w.Page(t.Context(), index.Alias, uuid.Nil, 10)
	require.NoError(t, err)
	require.Empty(t, page)
	all, err := w.List(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 2)
}

// A text that is no UTF-8 is written with replacements, as it would be shown, and holds nothing up.
func TestTextsThatAreNoUTF8AreWritten(t *testing.T) {
	t.Parallel()
	s := weaviatetest.Start(t)
	w := s.Client()
	name, _ := collectionOfFour(t, w)
	o := object(9, "ann")
	o.Question.Neutral = string(bytes.Repeat([]byte{0xff}, 3)) + " cut"
	require.NoError(t, w.Put(t.Context(), name, []index.Object{o}))
	require.Contains(t, get(t, s, name, o.ID), "\uFFFD cut")
}
