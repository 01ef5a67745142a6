package systemtest_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/memorytest"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// A memory outside (Supermemory) gets each turn once, and prompts get what it finds.
func TestAMemoryOutsideIsFedFromTheLog(t *testing.T) {
	t.Parallel()
	service := memorytest.New(t)
	p := stack.Serve(t, []string{"TURNLEDGER_MEMORY_URL=" + service.URL, "TURNLEDGER_MEMORY_KEY=k",
		"TURNLEDGER_MEMORY_BUDGET=5s"})
	p.LinkIdentity(t, "old", "ada")
	p.RecordTurn(t, "old", "r1", "My favourite paint is teal.", "Noted.")
	hang.Until(t, func() bool { return len(service.Documents()) == 1 })
	out := p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("new")+"/context",
		map[string]any{"message": "which paint", "memory": true, "identity_id": "ada"})
	require.Equal(t, "- User: My favourite paint is teal. Assistant: Noted.", out["memory_snippet"])
	list := p.Get(t, "/v1/projections")["projections"].([]any)
	found := false
	for _, entry := range list {
		if one := entry.(map[string]any); one["name"] == "memory" {
			found = true
			require.Equal(t, false, one["rebuildable"])
		}
	}
	require.True(t, found)
	// A rebuild of another view sends nothing again, and the memory itself can't be rebuilt.
	p.Must(t, http.StatusAccepted, http.MethodPost, "/v1/projections/recent/rebuild", nil)
	p.Must(t, http.StatusNotFound, http.MethodPost, "/v1/projections/memory/rebuild", nil)
	require.Equal(t, 1, service.Documents()[0].Puts)
}

// Only a process with the role audit feeds the memory. Without one a deletion is never confirmed: a warning says so.
func TestAMemoryThatNobodyFeedsIsReported(t *testing.T) {
	t.Parallel()
	service := memorytest.New(t)
	p := stack.Serve(t, []string{"TURNLEDGER_MEMORY_URL=" + service.URL, "TURNLEDGER_MEMORY_BUDGET=5s"},
		"--roles", "api,context,recent")
	p.WaitLog(t, "one with the role audit must run")
	secret := p.RecordTurn(t, "s", "r1", "I like teal.", "Noted.")
	p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("s")+"/turns/"+secret+"/redact", nil)
	out := p.BuildContext(t, "s", map[string]any{"message": "m", "memory": true})
	require.Contains(t, fmt.Sprint(out["warnings"]), "withheld")
	require.Contains(t, p.Metrics(t), "turnledger_memory_withheld_scopes 1")
}
