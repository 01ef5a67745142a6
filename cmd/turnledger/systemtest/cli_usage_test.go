package systemtest_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// A wrong argument ends with the status of wrong use, whether the command line, the verb or the server finds it.
func TestABadValueIsWrongUse(t *testing.T) {
	t.Parallel()
	p := stack.Serve(t, nil)
	id := p.RecordTurn(t, "s", "r", "question", "answer")
	keys := "keys:" + filepath.Join(t.TempDir(), "keys.json")
	for _, args := range [][]string{
		{"replay", "--from", "BAD"}, {"replay", "--from", "9:1"}, {"replay", "--to", "0:x"},
		{"replay", "--type", "BAD"}, {"replay", "--since", "BAD"}, {"replay", "--format", "BAD"},
		{"replay", "--session", ".."},
		{"context", "s", "m", "--max-messages", "1"}, {"context", "s", "m", "--language", "BAD"},
		{"context", "s", "m", "--format", "BAD"}, {"context", "s", "m", "--as-of", "BAD"},
		{"history", ".."}, {"history", "s", "--limit", "BAD"}, {"explain", "s", "BAD"},
		{"explain", "s", id, "--idle-timeout", "BAD"},
		{"link", "s", ".."}, {"redact", "..", id, "--yes"}, {"erase", "..", "--yes"}, {"erase"},
		{"export", "--identity", ".."}, {"retention", "--dry-run=BAD"},
		{"projections", "verify", "--sample", "BAD"}, {"deadletters", "show", "recent", "BAD"},
		{"streams", "plan", "--replicas", "9"}, {"streams", "apply", "--replicas", "9"},
		{"backup", "s3://"}, {"import", "--parallel", "0", "file"}, {"history", "s", "--url", "BAD"},
	} {
		if len(args) < 2 || args[len(args)-2] != "--url" {
			args = append(args, "--url", p.URL)
		}
		code, out, errs := stack.Run(t, args...)
		require.Equal(t, stack.ExitUsage, code, "%v: %s%s", args, out, errs)
	}
	for _, args := range [][]string{{"list", "--auth", "BAD"}, {"create", "n", "--scopes", "BAD", "--auth", keys},
		{"create", "n", "--scopes", "admin", "--expires", "BAD", "--auth", keys}} {
		code, out, errs := stack.Run(t, append([]string{"keys"}, args...)...)
		require.Equal(t, stack.ExitUsage, code, "%v: %s%s", args, out, errs)
	}
	// A session or turn that does not exist is no wrong use.
	code, _, errs := p.Run(t, "projections", "rebuild", "nothing", "--yes")
	require.Equal(t, stack.ExitFailed, code, errs)
}
