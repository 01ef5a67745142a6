package weaviate_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/embeddingstest"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	weaviatetest "github.com/turnledger/turnledger/deploy/testkit/weaviate"
)

// byWords is the warning of a context whose memory goes without the index.
const byWords = "memory: by words only, since the index of meanings does not answer"

// remembered returns what a prompt of an identity remembers of a message, with the warnings.
func remembered(t *testing.T, p *stack.Process, identity, message string) (snippet string, warnings []any) {
	t.Helper()
	out := p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("new-"+identity)+"/context",
		body{"message": message, "memory": true, "identity_id": identity})
	snippet, _ = out["memory_snippet"].(string)
	return snippet, out["warnings"].([]any)
}

// The memory of prompts finds what no word of the message names, of the same identity only; without the index it goes
// by words and says so.
func TestPromptsRememberByMeaning(t *testing.T) {
	t.Parallel()
	w, e := weaviatetest.Start(t), embeddingstest.Start(t)
	p := stack.Serve(t, environment(w, e, "TURNLEDGER_POSTGRES_URL="+pg.URL(t), "TURNLEDGER_MEMORY_BUDGET=10s"),
		"--roles", everyRole)
	p.LinkIdentity(t, "s", "ada")
	p.LinkIdentity(t, "other", "bob")
	p.RecordTurn(t, "s", "1", "My motorbicycle is insured until May.", "Noted.")
	p.RecordTurn(t, "other", "1", "My motorbicycle is insured until June.", "Noted.")
	p.WaitCaughtUp(t, "index", "audit")

	snippet, warnings := remembered(t, p, "ada", "bicycles")
	require.Contains(t, snippet, "until May", "no word of the message begins in the turn")
	require.NotContains(t, snippet, "June", "another identity's")
	require.Empty(t, warnings)
	for name, away := range map[string]struct{ leave, back func() }{
		"embedder": {func() { e.Fail(http.StatusBadGateway) }, func() { e.Fail(0) }},
		"weaviate": {w.Kill, w.Restart},
	} {
		away.leave()
		snippet, warnings = remembered(t, p, "ada", "bicycles")
		require.Empty(t, snippet, name)
		require.Equal(t, []any{byWords}, warnings, name)
		snippet, _ = remembered(t, p, "ada", "my motorbicycle")
		require.Contains(t, snippet, "until May", name)
		away.back()
		hang.Until(t, func() bool {
			snippet, warnings = remembered(t, p, "ada", "bicycles")
			return snippet != "" && len(warnings) == 0
		}, name)
	}
}

// An index that nobody feeds still holds what was redacted. The memory does not show it.
func TestTheMemoryShowsNothingThatOnlyTheIndexHolds(t *testing.T) {
	t.Parallel()
	w, e := weaviatetest.Start(t), embeddingstest.Start(t)
	nats := stack.FreeAddress(t)
	env := environment(w, e, "TURNLEDGER_POSTGRES_URL="+pg.URL(t), "TURNLEDGER_MEMORY_BUDGET=10s")
	p := stack.Serve(t, append(stack.ServeNATS(nats), env...), "--roles", "api,context,audit")
	feeder := stack.Serve(t, append(stack.JoinNATS(nats), env...), "--roles", "index")
	p.LinkIdentity(t, "s", "ada")
	gone := p.RecordTurn(t, "s", "1", "My motorbicycle is insured until May.", "Noted.")
	p.RecordTurn(t, "s", "2", "My old bicycles stand in the shed.", "Noted.")
	p.WaitCaughtUp(t, "audit")
	near := body{"query": "bicycles", "mode": "meaning", "identity_id": "ada"}
	hang.Until(t, func() bool { // it looks again now and then for an index that another process makes
		status, out, err := p.Call(t.Context(), http.MethodPost, "/v1/search", near)
		hits, _ := out["hits"].([]any)
		return err == nil && status == http.StatusOK && len(hits) == 2
	})
	feeder.Kill(t)
	snippet, _ := remembered(t, p, "ada", "motorbicycles")
	require.Contains(t, snippet, "until May")
	p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("s")+"/turns/"+gone+"/redact", nil)
	snippet, warnings := remembered(t, p, "ada", "motorbicycles")
	require.NotContains(t, snippet, "until May")
	require.Contains(t, snippet, "shed", "the index answers")
	require.Empty(t, warnings)
	require.Contains(t, p.Metrics(t), "turnledger_index_hits_taken_back_total 1")
}
