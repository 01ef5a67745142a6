package systemtest_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// docs/contract.md#context as_of: what would have been sent then, the position inclusive, and
// today's redactions applied.
func TestContextAsOf(t *testing.T) {
	t.Parallel()
	p := stack.Serve(t, nil)
	first := p.RecordTurn(t, "s", "1", "question 1", "answer 1")
	p.RecordTurn(t, "s", "2", "question 2", "answer 2")
	between := time.Now().UTC().Format(time.RFC3339Nano)
	p.RecordTurn(t, "s", "3", "question 3", "answer 3")
	for asOf, want := range map[string]string{
		"0:1": "", "0:2": "1", "0:3": "1", "0:4": "12", between: "12", "0:6": "123",
	} {
		code, out, said := p.Run(t, "context", "s", "now", "--as-of", asOf)
		require.Zero(t, code, said)
		wanted := ""
		for _, k := range want {
			wanted += fmt.Sprintf("user: question %c\nassistant: answer %c\n", k, k)
		}
		require.Equal(t, wanted+"user: now\n", out, asOf)
	}
	p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("s")+"/turns/"+first+"/redact", nil)
	_, out, _ := p.Run(t, "context", "s", "now", "--as-of", "0:4")
	require.Equal(t, "user: question 2\nassistant: answer 2\nuser: now\n", out)
	code, _, said := p.Run(t, "context", "s", "now", "--as-of", "0:99")
	require.Equal(t, stack.ExitFailed, code)
	require.Contains(t, said, "position_not_reached")
}
