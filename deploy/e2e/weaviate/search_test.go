package weaviate_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/embeddingstest"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	weaviatetest "github.com/turnledger/turnledger/deploy/testkit/weaviate"
)

// environment of a process with an index.
func environment(w *weaviatetest.Server, e *embeddingstest.Endpoint, more ...string) []string {
	return append(more, "TURNLEDGER_WEAVIATE_URL="+w.URL(), "TURNLEDGER_WEAVIATE_GRPC="+w.GRPC(),
		"TURNLEDGER_WEAVIATE_KEY="+w.Key(), "TURNLEDGER_EMBED_URL="+e.URL(), "TURNLEDGER_EMBED_NAME=hash",
		"TURNLEDGER_EMBED_DIMENSIONS=256")
}

const everyRole = "api,context,audit,index,eraser"

type body = map[string]any

// search returns the session/turn pairs of a search, with its mode.
func search(t *testing.T, p *stack.Process, ask body) (turns []string, mode string) {
	t.Helper()
	page := p.Must(t, http.StatusOK, http.MethodPost, "/v1/search", ask)
	for _, h := range page["hits"].([]any) {
		turns = append(turns, h.(body)["turn_id"].(string))
	}
	return turns, page["mode"].(string)
}

func TestTurnsAreFoundByTheirMeaning(t *testing.T) {
	t.Parallel()
	w, e := weaviatetest.Start(t), embeddingstest.Start(t)
	p := stack.Serve(t, environment(w, e, "TURNLEDGER_POSTGRES_URL="+pg.URL(t)), "--roles", everyRole)
	p.LinkIdentity(t, "s", "ada")
	tyre := p.RecordTurn(t, "s", "1", "how do I change a bicycle tyre", "With two levers and a pump.")
	lima := p.RecordTurn(t, "s", "2", "what is the capital of Peru", "Lima.")
	p.LinkIdentity(t, "other", "bob")
	again := p.RecordTurn(t, "other", "1", "how do I change the tyre of my bicycle", "At the shop.")
	p.WaitCaughtUp(t, "index", "audit")

	turns, mode := search(t, p, body{"query": "changing bicycle tyres", "mode": "meaning"})
	require.Equal(t, "meaning", mode)
	require.ElementsMatch(t, []string{tyre, again}, turns[:2])
	turns, _ = search(t, p, body{"query": "bicycle", "mode": "meaning", "identity_id": "ada"})
	require.Equal(t, tyre, turns[0])
	require.NotContains(t, turns, again)
	turns, mode = search(t, p, body{"query": "capital"})
	require.Equal(t, "hybrid", mode)
	require.Equal(t, lima, turns[0])

	page := p.Must(t, http.StatusOK, http.MethodPost, "/v1/similar",
		body{"question": "change a bicycle tyre", "limit": 2})
	hit := page["hits"].([]any)[0].(body)
	require.Contains(t, []any{tyre, again}, hit["turn_id"])
	require.Contains(t, hit["question_neutral"], "tyre")
	require.NotEmpty(t, hit["answer_neutral"])

	p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("s")+"/turns/"+tyre+"/redact", nil)
	turns, _ = search(t, p, body{"query": "changing bicycle tyres", "mode": "meaning"})
	require.NotContains(t, turns, tyre, "at once")
	turns, _ = search(t, p, body{"query": "changing bicycle tyres"})
	require.NotContains(t, turns, tyre, "at once")

	var alike, paged []string
	for n := range 40 {
		alike = append(alike, p.RecordTurn(t, "other", fmt.Sprint("alike ", n), "are you there", "I am."))
	}
	p.WaitCaughtUp(t, "index", "audit")
	for ask := (body{"query": "are you there", "mode": "meaning", "limit": 3}); ask["cursor"] != nil || paged == nil; {
		page := p.Must(t, http.StatusOK, http.MethodPost, "/v1/search", ask)
		for _, h := range page["hits"].([]any) {
			paged = append(paged, h.(body)["turn_id"].(string))
		}
		ask["cursor"] = page["next_cursor"]
	}
	require.Len(t, paged, len(alike)+2, "with the turns of before that are left")
	require.ElementsMatch(t, alike, paged[:len(alike)], "each once over all pages")

	code, out, errs := p.Run(t, "similar", "capital of Peru")
	require.Equal(t, stack.ExitDone, code, errs)
	require.Contains(t, out, "what is the capital of Peru")
	code, out, errs = p.Run(t, "projections", "verify", "index")
	require.Equal(t, stack.ExitDone, code, out+errs)
}

func TestWithoutTheIndexSearchesFallBackToWords(t *testing.T) {
	t.Parallel()
	w, e := weaviatetest.Start(t), embeddingstest.Start(t)
	p := stack.Serve(t, environment(w, e, "TURNLEDGER_POSTGRES_URL="+pg.URL(t)), "--roles", everyRole)
	p.LinkIdentity(t, "s", "ada")
	first := p.RecordTurn(t, "s", "1", "how do I change a bicycle tyre", "With two levers and a pump.")
	p.WaitCaughtUp(t, "index", "audit")
	for name, away := range map[string]struct{ leave, back func() }{
		"embedder": {func() { e.Fail(http.StatusBadGateway) }, func() { e.Fail(0) }},
		"weaviate": {w.Kill, w.Restart},
	} {
		away.leave()
		turns, mode := search(t, p, body{"query": "bicycle"})
		require.Equal(t, "words", mode, name)
		require.Equal(t, []string{first}, turns, name)
		refused := p.Must(t, http.StatusServiceUnavailable, http.MethodPost, "/v1/search",
			body{"query": "bicycle", "mode": "meaning"})
		require.Equal(t, "index_unavailable", refused["code"], name)
		require.Contains(t, refused["detail"], "search with mode words", name)
		p.RecordTurn(t, "s", name, "a turn while the "+name+" is away", "yes")
		away.back()
		hang.Until(t, func() bool {
			page := p.Must(t, http.StatusOK, http.MethodPost, "/v1/search",
				body{"query": "a turn while the " + name + " is away"})
			return page["mode"] == "hybrid" && len(page["hits"].([]any)) > 1
		}, name)
	}
	p.WaitCaughtUp(t, "index")
}

func TestReceiptsNameTheIndexAndItsFiles(t *testing.T) {
	t.Parallel()
	w, e := weaviatetest.Start(t), embeddingstest.Start(t)
	p := stack.Serve(t, environment(w, e, "TURNLEDGER_POSTGRES_URL="+pg.URL(t), "TURNLEDGER_INDEX_SCRUB=1s"),
		"--roles", everyRole)
	p.LinkIdentity(t, "s", "ada")
	p.RecordTurn(t, "s", "0", "what stays", "this stays")
	stay := codesOnDisk(t, w, 2)
	const secret = "xylophone-secret-4711"
	turn := p.RecordTurn(t, "s", "1", "my password is "+secret, "I will forget "+secret)
	erased := codesOnDisk(t, w, 4)
	for code := range stay {
		delete(erased, code)
	}
	erased["the text: "+secret] = secret
	for _, text := range []string{"my password is " + secret, "I will forget " + secret} {
		vector := embeddingstest.Vector(text, embeddingstest.Dimensions)
		erased["the vector of: "+text] = string(floatsOfMeaning(t, vector))
	}
	require.Len(t, erased, 5)
	for what, bytes := range erased {
		require.True(t, holdsBytes(t, w.Dir(), bytes), "%q is in Weaviate's files", what)
	}
	answer := p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("s")+"/turns/"+turn+"/redact", nil)
	places := func() map[string]bool {
		out := map[string]bool{}
		for _, at := range p.Get(t, "/v1/receipts/"+answer["position"].(string))["places"].([]any) {
			out[at.(body)["place"].(string)] = at.(body)["state"] == "done"
		}
		return out
	}
	require.Contains(t, places(), "index")
	require.Contains(t, places(), "index-files")
	hang.Until(t, func() bool { return places()["index-files"] },
		"%v", places())
	maps.DeleteFunc(erased, func(_, bytes string) bool { return !holdsBytes(t, w.Dir(), bytes) })
	require.Empty(t, slices.Collect(maps.Keys(erased)), "what the files still hold")
	require.Equal(t, stay, codesOnDisk(t, w, 2), "what was not erased is still there")
	require.True(t, places()["index"])
	require.True(t, strings.Contains(p.Metrics(t), "turnledger_index_vectors_total"))
}
