package deployment_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// A deployment of one binary becomes one of another, process by process, while users write and read: two processes of
// each role that follows the log, so that both binaries feed the same views for a while. No request fails that is tried
// once more, nothing is lost, and nobody is shown anything else than what was acknowledged. (Both are of this version;
// once there are releases, the first is the one before.)
func TestARollingRestartToAnotherBinary(t *testing.T) {
	t.Parallel()
	former := filepath.Join(t.TempDir(), "turnledger")
	program, err := os.ReadFile(stack.Binary(t))
	require.NoError(t, err)
	must.Program(t, former, string(program))
	env := append(stack.NewModel(t).Env(), "TURNLEDGER_REDIS_URL="+redistest.Start(t).URL(),
		"TURNLEDGER_POSTGRES_URL="+pg.URL(t))
	f := newDeploymentOf(t, former, map[string]int{roleAPI: 2, roleContext: 2, roleChat: 2, roleRecent: 2,
		roleAudit: 2, roleEraser: 2}, env...)
	c := startUsers(f, stack.Seed(t), 4, 0)
	f.binary = stack.Binary(t)
	f.restartEachProcess()
	c.finish()
	c.check()
	require.Positive(t, c.retried, "nobody met a process that was away")
	for _, p := range f.all() {
		require.Equal(t, f.binary, p.Cmd.Path)
	}
}
