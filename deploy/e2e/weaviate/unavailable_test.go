package weaviate_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/embeddingstest"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	weaviatetest "github.com/turnledger/turnledger/deploy/testkit/weaviate"
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
	p := stack.Serve(t, environment(w, e, "TURNLEDGER_POSTGRES_URL="+pg.URL(t)), "--roles", everyRole)
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
	hang.Until(t, func() bool {
		turns, mode := search(t, p, body{"query": "bicycle lamp"})
		return mode == "hybrid" && turns[0] == bare
	}, "the vector is made later")
}

// Another model is a rebuild that says so. Until it is run, searches go by words; nothing is compared with the vectors
// of the former model.
func TestAnotherModelIsARebuild(t *testing.T) {
	t.Parallel()
	w, e := weaviatetest.Start(t), embeddingstest.Start(t)
	dir, pg := stack.DataDir(t), pg.URL(t)
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
		awaitIndex(t, p, "outdated", "turnledger projections rebuild index")
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

// awaitIndex waits until the list of projections says that the index has a state, with a part of its last error.
func awaitIndex(t *testing.T, p *stack.Process, state, lastError string) {
	t.Helper()
	var last []any
	hang.Until(t, func() bool {
		last = p.Get(t, "/v1/projections")["projections"].([]any)
		for _, x := range last {
			s := x.(body)
			text, _ := s["last_error"].(string)
			if s["name"] == "index" && (s["state"] != state || !strings.Contains(text, lastError)) {
				return false
			}
		}
		return true
	}, "%v", &last)
}

// While nobody writes, the list says within seconds that Weaviate is away, and that it was put back to an older index.
// A rebuild mends the latter, also in a process that was started since, and by another log.
func TestTheListTellsOfAnIdleIndex(t *testing.T) {
	t.Parallel()
	w, e := weaviatetest.Start(t), embeddingstest.Start(t)
	env, dir := environment(w, e, "TURNLEDGER_POSTGRES_URL="+pg.URL(t)), stack.DataDir(t)
	serve := func() *stack.Process { return stack.Start(t, env, "serve", "--data-dir", dir, "--roles", everyRole) }
	p := serve()
	p.LinkIdentity(t, "s", "ada")
	p.RecordTurn(t, "s", "1", "how do I change a bicycle tyre", "With two levers and a pump.")
	p.WaitCaughtUp(t, "index", "audit")
	w.Kill()
	awaitIndex(t, p, "retrying", "weaviate")
	w.Restart()
	awaitIndex(t, p, "live", "")
	w.Pause()
	awaitIndex(t, p, "retrying", "weaviate")
	w.Resume()
	awaitIndex(t, p, "live", "")

	w.Save()
	w.Empty()
	hang.Until(t, func() bool {
		status, page, err := p.Call(t.Context(), http.MethodPost, "/v1/search",
			body{"query": "bicycle tyre", "mode": "meaning"})
		return err == nil && status == http.StatusOK && len(page["hits"].([]any)) == 1
	}, "it is filled again")
	awaitIndex(t, p, "live", "")
	w.Back()
	awaitIndex(t, p, "retrying", "turnledger projections rebuild index")
	p.Stop(t)
	w.Kill()
	p = serve()
	awaitIndex(t, p, "retrying", "weaviate") // it has never been opened by this process
	w.Restart()
	awaitIndex(t, p, "retrying", "turnledger projections rebuild index")
	code, out, errs := p.Run(t, "projections", "rebuild", "index", "--yes")
	require.Equal(t, stack.ExitDone, code, out+errs)
	awaitIndex(t, p, "live", "")

	other := stack.Serve(t, environment(w, e, "TURNLEDGER_POSTGRES_URL="+pg.URL(t)), "--roles", everyRole)
	awaitIndex(t, other, "retrying", "index of another log")
	awaitIndex(t, p, "live", "")
	code, out, errs = other.Run(t, "projections", "rebuild", "index", "--yes")
	require.Equal(t, stack.ExitDone, code, out+errs)
	awaitIndex(t, other, "live", "")
	awaitIndex(t, p, "retrying", "index of another log")
}

// Anonymous sessions that come into the index, or leave it, by a setting are a rebuild that says so. Until it is run,
// searches across identities go by words.
func TestAnonymousSessionsByASettingAreARebuild(t *testing.T) {
	t.Parallel()
	w, e := weaviatetest.Start(t), embeddingstest.Start(t)
	dir, pg := stack.DataDir(t), pg.URL(t)
	start := func(is string) *stack.Process {
		env := append(environment(w, e, "TURNLEDGER_POSTGRES_URL="+pg), "TURNLEDGER_INDEX_ANONYMOUS="+is)
		return stack.Start(t, env, "serve", "--data-dir", dir, "--roles", everyRole)
	}
	p := start("false")
	p.LinkIdentity(t, "s", "ada")
	linked := p.RecordTurn(t, "s", "1", "how do I change a bicycle tyre", "With two levers and a pump.")
	anonymous := p.RecordTurn(t, "nobody", "1", "where do I buy a bicycle bell", "At the shop.")
	p.WaitCaughtUp(t, "index", "audit")
	for _, is := range []string{"true", "false"} {
		p.Stop(t)
		p = start(is)
		p.WaitLog(t, "searches by meaning across identities are refused")
		p.WaitCaughtUp(t, "index", "audit")
		requireUnavailable(t, p, "turnledger projections rebuild index", is)
		turns, _ := search(t, p, body{"query": "bicycle", "mode": "meaning", "identity_id": "ada"})
		require.Equal(t, []string{linked}, turns, "of an identity nothing differs")
		awaitIndex(t, p, "outdated", "TURNLEDGER_INDEX_ANONYMOUS was changed")
		code, out, errs := p.Run(t, "projections", "rebuild", "index", "--yes")
		require.Equal(t, stack.ExitDone, code, out+errs)
		want := []string{linked}
		if is == "true" {
			want = append(want, anonymous)
		}
		turns, _ = search(t, p, body{"query": "bicycle", "mode": "meaning"})
		require.ElementsMatch(t, want, turns)
		awaitIndex(t, p, "live", "")
	}
}

func TestWithoutAnIndexMeaningSaysWhatToSet(t *testing.T) {
	t.Parallel()
	p := stack.Serve(t, []string{"TURNLEDGER_POSTGRES_URL=" + pg.URL(t)})
	p.LinkIdentity(t, "s", "ada")
	p.RecordTurn(t, "s", "1", "how do I change a bicycle tyre", "With two levers and a pump.")
	requireUnavailable(t, p, "set TURNLEDGER_WEAVIATE_URL and TURNLEDGER_EMBED_URL", "none is configured")
}
