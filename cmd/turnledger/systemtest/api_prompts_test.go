package systemtest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// TestPromptsWithAllThatCanBeInThem goes through a deployment with a rewriter, the audit
// tables as memory, and rates.
//
//conformance:i24 i25 i51 i55 i56 i64 h27
func TestPromptsWithAllThatCanBeInThem(t *testing.T) {
	t.Parallel()
	rewriter := modeltest.New(t, func(prompt []string) modeltest.Answer {
		if strings.Contains(prompt[len(prompt)-1], "teal") {
			return modeltest.Answer{Text: "Which paint is teal?"}
		}
		return modeltest.Answer{Status: http.StatusInternalServerError}
	})
	p := stack.Serve(t, []string{
		"TURNLEDGER_REWRITER_URL=" + rewriter.URL + "/v1", "TURNLEDGER_REWRITER_NAME=r",
		"TURNLEDGER_POSTGRES_URL=" + pg.URL(t),
		"TURNLEDGER_RATE_SESSION=4/1h", "TURNLEDGER_MODEL_NAME=gpt-4o", "TURNLEDGER_MEMORY_BUDGET=5s",
	})

	require.NotContains(t, p.Log.String(), "no effect")
	p.LinkIdentity(t, "old", "ada")
	secret := p.RecordTurn(t, "old", "r1", "My favourite paint is teal.", "Noted.")
	ask := func(body map[string]any) map[string]any {
		return p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("new")+"/context", body)
	}
	body := map[string]any{"message": "which paint?", "memory": true, "rewrite": true, "identity_id": "ada",
		"system_prompt": "Be kind."}
	out := ask(body)
	require.Equal(t, "- User: My favourite paint is teal. Assistant: Noted.", out["memory_snippet"])
	require.Equal(t, "Which paint is teal?", out["rewritten_query"])
	require.Equal(t, false, out["session_found"])
	require.Equal(t, []any{
		map[string]any{"role": "system", "content": "Be kind."},
		map[string]any{"role": "system",
			"content": "Long-term memory:\n- User: My favourite paint is teal. Assistant: Noted."},
		map[string]any{"role": "user",
			"content": "Original user message:\nwhich paint?\n\n---\n\nContextualized query:\nWhich paint is teal?"},
	}, out["messages"])

	p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("old")+"/turns/"+secret+"/redact", nil)
	out = ask(body)
	require.Nil(t, out["memory_snippet"])
	require.Equal(t, true, out["rewrite_fallback"])
	require.Equal(t, map[string]any{"role": "user", "content": "which paint?"}, out["messages"].([]any)[1])

	for range 2 {
		ask(map[string]any{"message": "m", "conversation_history": "no list at all"})
	}
	out = p.Must(t, http.StatusTooManyRequests, http.MethodPost, stack.SessionPath("new")+"/context", body)
	require.Equal(t, "rate_limited", out["code"])
	resp, err := http.Post(p.URL+stack.SessionPath("new")+"/context", "application/json",
		strings.NewReader(`{"message":"m"}`))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.NotEmpty(t, resp.Header.Get("Retry-After"))
	require.Equal(t, false, p.Get(t, stack.SessionPath("new"))["found"], "a context makes nothing")
	p.WaitLog(t, `route="POST /v1/sessions/\{session_id\}/context" status=200 duration=\S+ .*`+
		`memory_duration=\d\S+ rewriter_duration=\d\S+ prompt_duration=\d\S+\n`)
}
