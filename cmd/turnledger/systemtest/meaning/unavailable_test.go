package meaning_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/cmd/turnledger/systemtest/stack"
	"github.com/turnledger/turnledger/projections/audit/pgtest"
	"github.com/turnledger/turnledger/projections/index/embeddings/embeddingstest"
	"github.com/turnledger/turnledger/projections/index/weaviate/weaviatetest"
)

// requireUnavailable holds that all calls that need the index are 503, with what to do.
func requireUnavailable(t *testing.T, p *stack.Process, todo, about string) {
	t.Helper()
	for _, ask := range []struct {
		path string
		body body
	}{
		{"/v1/search", body{"query": "bicycle", "mode": "meaning"}},
		{"/v1/search", body{"query": "bicycle", "mode": "hybrid"}},
		{"/v1/similar", body{"question": "bicycle"}},
	} {
		refused := p.Must(t, http.StatusServiceUnavailable, http.MethodPost, ask.path, ask.body)
		require.Equal(t, "index_unavailable", refused["code"], about)
		require.Contains(t, refused["detail"], todo, about)
	}
	code, _, errs := p.Run(t, "search", "--mode", "meaning", "bicycle")
	require.Equal(t, stack.ExitFailed, code)
	require.Contains(t, errs, todo, about)
	code, out, errs := p.Run(t, "search", "bicycle")
	require.Equal(t, stack.ExitDone, code, errs)
	require.Contains(t, out, "how do I change a bicycle tyre", about)
	_, mode := search(t, p, body{"query": "bicycle"})
	require.Equal(t, "words", mode, about)
}

// Without the index each call says what to do, deletions go on, and what was missing is there afterwards.
func TestWhatAnIndexThatIsAwayLeaves(t *testing.T) {
	t.Parallel()
	w, e := weaviatetest.Start(t), embeddingstest.Start(t)
	p := stack.Serve(t, environment(w, e, "TURNLEDGER_POSTGRES_URL="+pgtest.URL(t)), "--roles", everyRole)
	p.LinkIdentity(t, "s", "ada")
	p.RecordTurn(t, "s", "1", "how do I change a bicycle tyre", "With two levers and a pump.")
	gone := p.RecordTurn(t, "s", "2", "where do I buy a bicycle bell", "At the shop.")
	p.WaitCaughtUp(t, "index", "audit")

	w.Kill()
	requireUnavailable(t, p, "turnledger projections list", "weaviate is away")
	w.Restart()
	p.WaitCaughtUp(t, "index")
	w.Pause()
	requireUnavailable(t, p, "turnledger projections list", "weaviate hangs")
	w.Resume()
	e.Fail(http.StatusBadGateway)
	requireUnavailable(t, p, "TURNLEDGER_EMBED_URL", "the embedder is away")
	p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("s")+"/turns/"+gone+"/redact", nil)
	bare := p.RecordTurn(t, "s", "3", "which bicycle lamp is bright", "The blue one.")
	p.WaitCaughtUp(t, "index")
	page, err := w.Client().Page(t.Context(), "TurnledgerTurns", [16]byte{}, 100)
	require.NoError(t, err)
	ids := map[string]bool{}
	for _, o := range page {
		ids[o.ID.String()] = true
	}
	require.False(t, ids[gone], "deletions wait for no embedder")
	require.True(t, ids[bare], "turns are indexed without vectors")
	e.Fail(0)
	require.Eventually(t, func() bool {
		turns, mode := search(t, p, body{"query": "bicycle lamp"})
		return mode == "hybrid" && turns[0] == bare
	}, time.Minute, 50*time.Millisecond, "the vector is made later")
}

// Another model is a rebuild that says so. Until it is run, searches go by words; nothing is compared with the vectors
// of the former model.
func TestAnotherModelIsARebuild(t *testing.T) {
	t.Parallel()
	w, e := weaviatetest.Start(t), embeddingstest.Start(t)
	dir, pg := stack.DataDir(t), pgtest.URL(t)
	start := func(model string) *stack.Process {
		env := append(environment(w, e, "TURNLEDGER_POSTGRES_URL="+pg), model)
		return stack.Start(t, env, "serve", "--data-dir", dir, "--roles", everyRole)
	}
	p := start("TURNLEDGER_EMBED_NAME=hash")
	p.LinkIdentity(t, "s", "ada")
	first := p.RecordTurn(t, "s", "1", "how do I change a bicycle tyre", "With two levers and a pump.")
	p.WaitCaughtUp(t, "index", "audit")
	for _, model := range []string{"TURNLEDGER_EMBED_NAME=other", "TURNLEDGER_EMBED_DIMENSIONS=128"} {
		p.Stop(t)
		p = start(model)
		p.WaitLog(t, "searches by meaning are refused")
		second := p.RecordTurn(t, "s", model, "where do I buy a bicycle bell", "At the shop.")
		p.WaitCaughtUp(t, "index", "audit")
		requireUnavailable(t, p, "turnledger projections rebuild index", model)
		code, out, errs := p.Run(t, "projections", "rebuild", "index", "--yes")
		require.Equal(t, stack.ExitDone, code, out+errs)
		turns, mode := search(t, p, body{"query": "bicycle tyre", "mode": "meaning"})
		require.Equal(t, "meaning", mode)
		require.Equal(t, first, turns[0], model)
		require.Contains(t, turns, second, model)
		code, out, errs = p.Run(t, "projections", "verify", "index")
		require.Equal(t, stack.ExitDone, code, out+errs)
	}
}

func TestWithoutAnIndexMeaningSaysWhatToSet(t *testing.T) {
	t.Parallel()
	p := stack.Serve(t, []string{"TURNLEDGER_POSTGRES_URL=" + pgtest.URL(t)})
	p.LinkIdentity(t, "s", "ada")
	p.RecordTurn(t, "s", "1", "how do I change a bicycle tyre", "With two levers and a pump.")
	requireUnavailable(t, p, "set TURNLEDGER_WEAVIATE_URL and TURNLEDGER_EMBED_URL", "none is configured")
}
