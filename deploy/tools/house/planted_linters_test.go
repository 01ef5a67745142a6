//go:build linters

package house_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The packages in testdata/planted break rules that the linters keep, and the linters report each. `make lint` names
// its linter in GOLANGCI, as the words of a command.
func TestLintersFindWhatIsPlanted(t *testing.T) {
	command := strings.Fields(os.Getenv("GOLANGCI"))
	require.NotEmpty(t, command, "make lint runs this test, and names the linter in GOLANGCI")
	const planted = "./deploy/tools/house/testdata/planted/"
	args := append(command[1:], "run", "--allow-parallel-runners", planted+"events/switches",
		planted+"projections/upward", planted+"services/httpapi/wire")
	cmd := exec.CommandContext(t.Context(), command[0], args...)
	cmd.Dir = root
	out, err := cmd.Output()
	_, failed := errors.AsType[*exec.ExitError](err)
	require.True(t, failed, "it exits with 1: %v", err)
	for place, says := range map[string]string{
		"switches.go:11:": "missing cases in expression switch: conversation.Seen,",
		"switches.go:21:": "missing cases for ErasureReceipt,",
		"upward.go:4:":    "from list 'direction-projections'",
		"wire.go:4:":      "from list 'wire'",
	} {
		require.True(t, reports(string(out), place, says), "%s: %s\n%s", place, says, out)
	}
}

func reports(out, place, says string) bool {
	for line := range strings.Lines(out) {
		if strings.Contains(line, place) && strings.Contains(line, says) {
			return true
		}
	}
	return false
}
