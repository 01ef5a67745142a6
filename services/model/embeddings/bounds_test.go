package embeddings_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/embeddingstest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services/model/embeddings"
)

// endpoint runs a handler as an endpoint until the test ends.
func endpoint(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s.URL + "/v1"
}

func textsOf(n, length int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("%0*d", length, i))
	}
	return out
}

// Calls and tokens are counted by their outcome: a bill can be foreseen from them.
func TestCallsAndTokensAreCounted(t *testing.T) {
	t.Parallel()
	e := embeddingstest.Start(t)
	reg := prometheus.NewRegistry()
	c := embeddings.New(embeddings.Config{URL: e.URL(), Name: "m", Registry: reg})
	_, err := c.Embed(t.Context(), []string{"one two three", "four"})
	require.NoError(t, err)
	e.Fail(http.StatusBadRequest)
	_, err = c.Embed(t.Context(), []string{"five"})
	require.Error(t, err)
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP turnledger_embeddings_calls_total Calls of the embeddings endpoint, by outcome.
# TYPE turnledger_embeddings_calls_total counter
turnledger_embeddings_calls_total{outcome="done"} 1
turnledger_embeddings_calls_total{outcome="failed"} 2
# HELP turnledger_embeddings_tokens_total Tokens that the embeddings endpoint has counted.
# TYPE turnledger_embeddings_tokens_total counter
turnledger_embeddings_tokens_total 4
`)))
}

// What is in flight is bounded, in calls and in characters.
func TestWhatIsInFlightIsBounded(t *testing.T) {
	t.Parallel()
	inner := embeddingstest.Start(t)
	var now, most, largest atomic.Int64
	raise := func(of *atomic.Int64, to int64) {
		for was := of.Load(); to > was && !of.CompareAndSwap(was, to); was = of.Load() {
		}
	}
	url := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		raise(&most, now.Add(1))
		defer now.Add(-1)
		raise(&largest, r.ContentLength)
		select { // long enough for the next call to come
		case <-time.After(20 * time.Millisecond):
		case <-r.Context().Done():
		}
		inner.ServeHTTP(w, r)
	})
	c := embeddings.New(embeddings.Config{URL: url, Name: "m", Dimensions: 8})
	_, err := c.Embed(t.Context(), textsOf(1200, 10))
	require.NoError(t, err)
	require.LessOrEqual(t, most.Load(), int64(4))
	require.Greater(t, most.Load(), int64(1))
	largest.Store(0)
	_, err = c.Embed(t.Context(), textsOf(50, 20_000))
	require.NoError(t, err)
	require.Less(t, largest.Load(), int64(210_000), "10 texts a call")
	_, err = c.Embed(t.Context(), textsOf(1, 300_000))
	require.NoError(t, err, "a text that is longer goes alone")
}

// An endpoint that hangs costs the time of a call and of its retries, and no more.
func TestAnEndpointThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	url := endpoint(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	c := embeddings.New(embeddings.Config{URL: url, Name: "m", Timeout: 100 * time.Millisecond})
	began := time.Now()
	_, err := c.Embed(t.Context(), []string{"a secret"})
	require.ErrorIs(t, err, projections.ErrEmbedder)
	require.Less(t, time.Since(began), 30*time.Second)
	require.NotContains(t, err.Error(), "secret")
}

// The key goes to the endpoint; without one no header does, whatever the environment holds.
func TestTheKeyGoesToTheEndpoint(t *testing.T) {
	inner := embeddingstest.Start(t)
	t.Setenv("OPENAI_API_KEY", "of somebody else")
	for key, want := range map[string]string{"k1": "Bearer k1", "": ""} {
		var got atomic.Value
		url := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
			got.Store(r.Header.Get("Authorization"))
			inner.ServeHTTP(w, r)
		})
		_, err := embeddings.New(embeddings.Config{URL: url, Name: "m", Key: key}).Embed(t.Context(), []string{"x"})
		require.NoError(t, err)
		require.Equal(t, want, got.Load())
	}
}

// An answer that lacks vectors, or has one too many, is refused whole: a turn would have another's vector.
func TestAnAnswerOfAnotherFormIsRefused(t *testing.T) {
	t.Parallel()
	datum := func(index int, vector any) any { return map[string]any{"index": index, "embedding": vector} }
	one := []float32{1, 0}
	for name, data := range map[string]any{
		"one is missing": []any{datum(0, one)}, "the same twice": []any{datum(1, one), datum(1, one)},
		"beyond the last":  []any{datum(0, one), datum(2, one)},
		"before the first": []any{datum(-1, one), datum(1, one)},
		"no base64":        []any{datum(0, "&"), datum(1, one)},
		"half a number":    []any{datum(0, "AAAA"), datum(1, one)},
		"an empty one":     []any{datum(0, []float32{}), datum(1, one)}, "no list": "none",
		"a text in it": []any{datum(0, []string{"x"}), datum(1, one)},
	} {
		url := endpoint(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"data": data})
		})
		_, err := embeddings.New(embeddings.Config{URL: url, Name: "m"}).Embed(t.Context(), []string{"a", "b"})
		require.ErrorIs(t, err, projections.ErrEmbedder, name)
		require.ErrorContains(t, err, "another form", name)
	}
}

// The model's name and its dimensions are one: vectors of different lengths can't be compared.
func TestAModelIsItsNameAndItsDimensions(t *testing.T) {
	t.Parallel()
	of := func(name string, dimensions int) string {
		return embeddings.New(embeddings.Config{Name: name, Dimensions: dimensions}).Model()
	}
	require.Equal(t, "m", of("m", 0))
	require.NotEqual(t, of("m", 64), of("m", 128))
	require.NotEqual(t, of("m", 64), of("n", 64))
}

// A text that the endpoint refuses costs no other text its vector. Of a text that is too long for the model, as much is
// embedded as the endpoint takes; one that it refuses at any length has no vector.
func TestATextThatIsRefusedCostsNoOtherItsVector(t *testing.T) {
	t.Parallel()
	e := embeddingstest.Start(t)
	e.Refuse(func(text string) bool { return len([]rune(text)) > 300 || strings.Contains(text, "never") })
	texts := textsOf(200, 40)
	texts[3], texts[77], texts[199] = strings.Repeat("長い", 500), "never", strings.Repeat("never ", 1000)
	c := embeddings.New(embeddings.Config{URL: e.URL(), Name: "m", Dimensions: 64})
	got := must.Get(c.Embed(t.Context(), texts))(t)
	for i, text := range texts {
		switch i {
		case 77, 199:
			require.Nil(t, got[i], i)
			continue
		case 3:
			text = strings.Repeat("長い", 125)
		}
		require.InDeltaSlice(t, embeddingstest.Vector(text, 64), got[i], 1e-6, i)
	}
	require.Less(t, e.Calls(), 60, "texts are halved, and not asked one by one")
}

// An endpoint that refuses whatever it is sent has failed: no text is at fault, and it is not asked for each of them.
func TestAnEndpointThatRefusesAllHasFailed(t *testing.T) {
	t.Parallel()
	for _, status := range []int{
		http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity,
	} {
		e := embeddingstest.Start(t)
		e.Fail(status)
		_, err := embeddings.New(embeddings.Config{URL: e.URL(), Name: "m"}).Embed(t.Context(), textsOf(96, 40))
		require.ErrorIs(t, err, projections.ErrEmbedder)
		require.ErrorContains(t, err, fmt.Sprint("answered ", status))
		require.Equal(t, 2, e.Calls(), "the texts, and a text that no endpoint refuses for what it says")
	}
}
