package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/projections/audit/pgtest"
	"github.com/turnledger/turnledger/projections/recent/redis/redistest"
	"github.com/turnledger/turnledger/services/chat/modeltest"
	"github.com/turnledger/turnledger/services/memory/memorytest"
)

// TestPromptsWithAllThatCanBeInThem goes through a deployment with a rewriter, the audit
// tables as memory, and rates.
func TestPromptsWithAllThatCanBeInThem(t *testing.T) {
	t.Parallel()
	rewriter := modeltest.New(t, func(prompt []string) modeltest.Answer {
		if strings.Contains(prompt[len(prompt)-1], "teal") {
			return modeltest.Answer{Text: "Which paint is teal?"}
		}
		return modeltest.Answer{Status: http.StatusInternalServerError}
	})
	p := start(t, []string{
		"TURNLEDGER_REWRITER_URL=" + rewriter.URL + "/v1", "TURNLEDGER_REWRITER_NAME=r", "TURNLEDGER_POSTGRES_URL=" + pgtest.URL(t),
		"TURNLEDGER_RATE_SESSION=4/1h", "TURNLEDGER_MODEL_NAME=gpt-4o", "TURNLEDGER_MEMORY_BUDGET=5s",
	}, "serve", "--data-dir", dataDir(t))
	require.NotContains(t, p.log.String(), "no effect")
	p.must(t, http.StatusOK, http.MethodPut, session("old")+"/identity", map[string]any{"identity_id": "ada"})
	secret := p.turn(t, "old", "r1", "My favourite paint is teal.", "Noted.")
	ask := func(body map[string]any) map[string]any {
		return p.must(t, http.StatusOK, http.MethodPost, session("new")+"/context", body)
	}
	body := map[string]any{"message": "which paint?", "memory": true, "rewrite": true, "identity_id": "ada", "system_prompt": "Be kind."}
	out := ask(body)
	require.Equal(t, "- User: My favourite paint is teal. Assistant: Noted.", out["memory_snippet"])
	require.Equal(t, "Which paint is teal?", out["rewritten_query"])
	require.Equal(t, false, out["session_found"])
	require.Equal(t, []any{
		map[string]any{"role": "system", "content": "Be kind."},
		map[string]any{"role": "system", "content": "Long-term memory:\n- User: My favourite paint is teal. Assistant: Noted."},
		map[string]any{"role": "user", "content": "Original user message:\nwhich paint?\n\n---\n\nContextualized query:\nWhich paint is teal?"},
	}, out["messages"])

	p.must(t, http.StatusOK, http.MethodPost, session("old")+"/turns/"+secret+"/redact", nil)
	out = ask(body)
	require.Nil(t, out["memory_snippet"])
	require.Equal(t, true, out["rewrite_fallback"])
	require.Equal(t, map[string]any{"role": "user", "content": "which paint?"}, out["messages"].([]any)[1])

	for range 2 {
		ask(map[string]any{"message": "m", "conversation_history": "no list at all"})
	}
	out = p.must(t, http.StatusTooManyRequests, http.MethodPost, session("new")+"/context", body)
	require.Equal(t, "rate_limited", out["code"])
	resp, err := http.Post(p.url+session("new")+"/context", "application/json", strings.NewReader(`{"message":"m"}`))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.NotEmpty(t, resp.Header.Get("Retry-After"))
	require.Equal(t, false, p.must(t, http.StatusOK, http.MethodGet, session("new"), nil)["found"], "a context makes nothing")
	p.says(t, `route="POST /v1/sessions/\{session_id\}/context" status=200 duration=\S+ .*memory_duration=\d\S+ rewriter_duration=\d\S+ prompt_duration=\d\S+\n`)
}

// TestAMemoryOutsideIsFedFromTheLog goes through a deployment with Supermemory.
func TestAMemoryOutsideIsFedFromTheLog(t *testing.T) {
	t.Parallel()
	service := memorytest.New(t)
	p := start(t, []string{"TURNLEDGER_MEMORY_URL=" + service.URL, "TURNLEDGER_MEMORY_KEY=k", "TURNLEDGER_MEMORY_BUDGET=5s"}, "serve", "--data-dir", dataDir(t))
	p.must(t, http.StatusOK, http.MethodPut, session("old")+"/identity", map[string]any{"identity_id": "ada"})
	p.turn(t, "old", "r1", "My favourite paint is teal.", "Noted.")
	require.Eventually(t, func() bool { return len(service.Documents()) == 1 }, 20*time.Second, 10*time.Millisecond)
	out := p.must(t, http.StatusOK, http.MethodPost, session("new")+"/context", map[string]any{"message": "which paint", "memory": true, "identity_id": "ada"})
	require.Equal(t, "- User: My favourite paint is teal. Assistant: Noted.", out["memory_snippet"])
	list := p.must(t, http.StatusOK, http.MethodGet, "/v1/projections", nil)["projections"].([]any)
	found := false
	for _, entry := range list {
		if one := entry.(map[string]any); one["name"] == "memory" {
			found = true
			require.Equal(t, false, one["rebuildable"])
		}
	}
	require.True(t, found)
	// A rebuild of other views stores nothing again, and the memory has none.
	p.must(t, http.StatusAccepted, http.MethodPost, "/v1/projections/recent/rebuild", nil)
	p.must(t, http.StatusNotFound, http.MethodPost, "/v1/projections/memory/rebuild", nil)
	require.Equal(t, 1, service.Documents()[0].Puts)
}

// TestAMemoryThatNobodyFeedsIsToldOf: without the role audit a deletion is never confirmed.
func TestAMemoryThatNobodyFeedsIsToldOf(t *testing.T) {
	t.Parallel()
	service := memorytest.New(t)
	p := start(t, []string{"TURNLEDGER_MEMORY_URL=" + service.URL, "TURNLEDGER_MEMORY_BUDGET=5s"}, "serve", "--data-dir", dataDir(t), "--roles", "api,context,recent")
	p.says(t, "one with the role audit must run")
	secret := p.turn(t, "s", "r1", "I like teal.", "Noted.")
	p.must(t, http.StatusOK, http.MethodPost, session("s")+"/turns/"+secret+"/redact", nil)
	out := p.build(t, "s", map[string]any{"message": "m", "memory": true})
	require.Contains(t, fmt.Sprint(out["warnings"]), "withheld")
	require.Contains(t, p.text(t, "/metrics"), "turnledger_memory_withheld_scopes 1")
}

// text gives an answer that is no JSON.
func (p *process) text(t testing.TB, path string) string {
	t.Helper()
	resp, err := http.Get(p.url + path)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(raw)
}

// TestASecondRecentViewIsComparedAndNeverAnswers empties the second view: reads go on as
// they were.
func TestASecondRecentViewIsComparedAndNeverAnswers(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := start(t, []string{"TURNLEDGER_RECENT_SHADOW=" + redis.URL()}, "serve", "--data-dir", dataDir(t), "--roles", "api,context,recent")
	p.turn(t, "s", "r1", "a secret question", "an answer")
	metric := func(result string) bool {
		require.Len(t, p.context(t, "s"), 2)
		return strings.Contains(p.text(t, "/metrics"), `turnledger_recent_shadow_reads_total{result="`+result+`"}`)
	}
	require.Eventually(t, func() bool { return metric("same") }, 20*time.Second, 20*time.Millisecond)
	require.NotContains(t, p.text(t, "/metrics"), `result="different"`)
	redis.Restart(redistest.Empty)
	require.Eventually(t, func() bool { return metric("behind") || metric("failed") }, 20*time.Second, 20*time.Millisecond)
	require.NotContains(t, p.log.String(), "secret")
}
