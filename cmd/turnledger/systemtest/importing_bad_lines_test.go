package systemtest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// A line that can't be read is reported, and the rest is imported. Each round imports sessions of its own.
func TestALineThatCannotBeReadIsReported(t *testing.T) {
	t.Parallel()
	p := stack.Shared(t)
	lines := "\xef\xbb\xbf" +
		`{"conversation_id":"a#","messages":[{"role":"user","content":"first"}]}
{"conversation_id":"a#","messages":[{"role":"user","content":"second"}]}
{"conversation_id":"a#","messages":[{"role":"user","content":"first"}]}
{"conversation_id":"b#","messages":[{"role":"user","content":"caf` + "\xe9" + `"}]}
{"conversation_id":"c#","messages":[{"role":"user","content":"last"}]}`
	for round := range 20 {
		file := filepath.Join(t.TempDir(), "c.jsonl")
		require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(lines, "#", fmt.Sprint(round))), 0o600))
		errs := p.Fails(t, "import", "--parallel", "1", file)
		require.Contains(t, errs, "c.jsonl:2: another conversation")
		require.Contains(t, errs, "c.jsonl:4: not UTF-8")
		require.Contains(t, errs, "2 lines were not imported whole")
		for id, question := range map[string]string{"a": "first", "c": "last"} {
			require.Equal(t, []any{map[string]any{"role": "user", "content": question}},
				p.Context(t, fmt.Sprint(id, round)))
		}
		found := p.Get(t, stack.SessionPath(fmt.Sprint("b", round)))["found"]
		require.Equal(t, false, found)
	}
}
