package systemtest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

var recipe = regexp.MustCompile("(?ms)^## ([^\n]+)\n.*?^```sh\n(.*?)^```\n\n^```\n(.*?)^```$")

// Each task of docs/cookbook.md prints what stands below it; an ellipsis is any text within a line.
func TestTheCookbookRuns(t *testing.T) {
	t.Parallel()
	p := stack.Start(t, nil, "dev", "--data-dir", stack.DataDir(t))
	bin, folder := t.TempDir(), t.TempDir()
	require.NoError(t, os.Symlink(p.Cmd.Path, filepath.Join(bin, "turnledger")))
	page := must.Get(os.ReadFile("../../../docs/cookbook.md"))(t)
	tasks := recipe.FindAllStringSubmatch(string(page), -1)
	require.Len(t, tasks, strings.Count(string(page), "\n## "), "a task lacks its block, or what it prints")
	require.Len(t, tasks, 13)
	for _, task := range tasks {
		t.Run(task[1], func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "sh", "-u", "-c", task[2])
			cmd.Dir = folder
			cmd.Env = append(os.Environ(), "TURNLEDGER_URL="+p.URL, "PATH="+bin+":"+os.Getenv("PATH"))
			var said strings.Builder
			cmd.Stderr = &said
			out := must.Get(cmd.Output())(t, said.String())
			wanted := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(task[3])), "…", ".*")
			require.Regexp(t, "^"+wanted+"$", strings.TrimSpace(string(out)), "it also says: %s", &said)
		})
	}
}
