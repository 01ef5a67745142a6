package systemtest_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/memorytest"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

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
