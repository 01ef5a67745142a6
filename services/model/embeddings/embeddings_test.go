package embeddings_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/embeddingstest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/services/model/embeddings"
)

func TestVectorsComeInTheOrderOfTheirTexts(t *testing.T) {
	t.Parallel()
	for name, numbers := range map[string]bool{"base64": false, "numbers": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := embeddingstest.Start(t)
			if numbers {
				e.SendNumbers()
			}
			reg := prometheus.NewRegistry()
			c := embeddings.New(embeddings.Config{URL: e.URL(), Name: "m", Dimensions: 64, Registry: reg})
			n := must.Get(testutil.GatherAndCount(reg, "turnledger_embeddings_calls_total"))(t)
			require.Equal(t, 2, n, "the alert needs both outcomes before there was a call")
			texts := make([]string, 500)
			for i := range texts {
				texts[i] = fmt.Sprintf("text number %d", i)
			}
			got := must.Get(c.Embed(t.Context(), texts))(t)
			for i := range texts {
				require.InDeltaSlice(t, embeddingstest.Vector(texts[i], 64), got[i], 1e-6)
			}
			require.Equal(t, 6, e.Calls(), "500 texts go in calls of 96")
			require.Equal(t, "m/64", c.Model())
			n, err := testutil.GatherAndCount(reg, "turnledger_embeddings_calls_total",
				"turnledger_embeddings_tokens_total")
			require.NoError(t, err)
			require.Equal(t, 3, n)
		})
	}
}

func TestARefusalNamesTheStatusAndNoText(t *testing.T) {
	t.Parallel()
	e := embeddingstest.Start(t)
	c := embeddings.New(embeddings.Config{URL: e.URL(), Name: "m"})
	e.Fail(http.StatusBadRequest)
	_, err := c.Embed(t.Context(), []string{"a secret"})
	require.ErrorIs(t, err, projections.ErrEmbedder)
	require.ErrorContains(t, err, "answered 400")
	require.NotContains(t, err.Error(), "secret")
	e.Fail(0)
	_, err = c.Embed(t.Context(), []string{"a secret"})
	require.NoError(t, err)
}

func TestAFailureThatMayPassIsTriedAgain(t *testing.T) {
	t.Parallel()
	e := embeddingstest.Start(t)
	e.Fail(http.StatusServiceUnavailable)
	_, err := embeddings.New(embeddings.Config{URL: e.URL(), Name: "m"}).Embed(t.Context(), []string{"x"})
	require.ErrorIs(t, err, projections.ErrEmbedder)
	require.Equal(t, 3, e.Calls())
}

func TestOtherDimensionsThanWereAskedForAreRefused(t *testing.T) {
	t.Parallel()
	e := embeddingstest.Start(t)
	e.Answer(7)
	c := embeddings.New(embeddings.Config{URL: e.URL(), Name: "m", Dimensions: 64})
	_, err := c.Embed(t.Context(), []string{"x"})
	require.ErrorContains(t, err, "7 dimensions")
}

func TestACallerThatGoesEndsTheCall(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := embeddings.New(embeddings.Config{URL: embeddingstest.Start(t).URL(), Name: "m"}).Embed(ctx, []string{"x"})
	require.ErrorIs(t, err, context.Canceled)
}
