package systemtest_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// A verb whose output can't be written exits with 1.
func TestLostOutputIsAFailure(t *testing.T) {
	t.Parallel()
	p := stack.Serve(t, nil)
	p.RecordTurn(t, "s", "r", "question", "answer")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer func() { _ = full.Close() }()
	for _, args := range [][]string{{"history", "s"}, {"context", "s", "m"}, {"projections", "list"}, {"version"}} {
		var errs strings.Builder
		cmd := p.Command(t, args...)
		cmd.Stdout, cmd.Stderr = full, &errs
		require.Error(t, cmd.Run())
		require.Equal(t, stack.ExitFailed, cmd.ProcessState.ExitCode(), args)
		require.Contains(t, errs.String(), "no space left on device")
	}
}
