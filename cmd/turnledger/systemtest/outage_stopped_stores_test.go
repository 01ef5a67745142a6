package systemtest_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

func TestWithRedisStoppedTheNextContextIsRight(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := stack.Serve(t, []string{"TURNLEDGER_REDIS_URL=" + redis.URL()}, "--roles", "api,context,recent")
	p.RecordExchange(t, "s", 0)
	p.WaitCaughtUp(t, "recent")
	require.Equal(t, "ok", p.Get(t, "/readyz")["status"])
	redis.Stop()
	hang.Until(t, func() bool { return p.Get(t, "/readyz")["status"] == "degraded" }, "it stays ready, and tells")
	check := p.Get(t, "/readyz")["checks"].(map[string]any)["redis"].(map[string]any)
	require.Equal(t, "Redis does not answer, or may not be used", check["reason"], "and never its address")
	require.Contains(t, p.Metrics(t), `turnledger_dependency_up{dependency="redis"} 0`)
	require.Contains(t, p.Metrics(t), `turnledger_dependency_up{dependency="log"} 1`)
	p.RecordExchange(t, "s", 1)
	p.RecordExchange(t, "s", 2)
	redis.Restart(redistest.Empty)
	p.RecordExchange(t, "s", 3)
	p.WaitCaughtUp(t, "recent")
	require.Equal(t, stack.Exchanges(4), p.Context(t, "s"))
}

func TestWithPostgresStoppedTheNextContextIsRight(t *testing.T) {
	t.Parallel()
	pg := pg.Start(t)
	p := stack.Serve(t, []string{"TURNLEDGER_POSTGRES_URL=" + pg.URL()})
	p.LinkIdentity(t, "s", "u")
	p.RecordExchange(t, "s", 0)
	p.WaitCaughtUp(t, "audit")
	require.Equal(t, stack.Questions(1), p.AuditedQuestions(t, "u"))
	out := p.Must(t, http.StatusUnprocessableEntity, http.MethodGet, "/v1/identities/u/turns?cursor=none", nil)
	require.Equal(t, "invalid_argument", out["code"])
	require.NoError(t, pg.Stop(t.Context()))
	p.RecordExchange(t, "s", 1)
	out = p.Must(t, http.StatusServiceUnavailable, http.MethodGet, "/v1/identities/u/turns", nil)
	require.Equal(t, "audit_unavailable", out["code"])
	require.NoError(t, pg.Restart(t.Context()))
	p.WaitCaughtUp(t, "audit")
	require.Equal(t, stack.Questions(2), p.AuditedQuestions(t, "u"))
}

// The projectors are a process of their own here, and are killed.
func TestWithTheProjectorsStoppedTheNextContextIsRight(t *testing.T) {
	t.Parallel()
	redis, pg := redistest.Start(t), pg.URL(t)
	nats := stack.FreeAddress(t)
	views := []string{"TURNLEDGER_REDIS_URL=" + redis.URL(), "TURNLEDGER_POSTGRES_URL=" + pg}
	api := stack.Serve(t, append(views, stack.ServeNATS(nats)...), "--roles", "api,context")
	outside := append(views, stack.JoinNATS(nats)...)
	projectors := stack.Start(t, outside, "serve", "--roles", "recent,audit")
	api.LinkIdentity(t, "s", "u")
	api.RecordExchange(t, "s", 0)
	projectors.WaitCaughtUp(t, "recent", "audit")
	projectors.Kill(t)
	api.RecordExchange(t, "s", 1)
	api.RecordExchange(t, "s", 2)
	projectors = stack.Start(t, outside, "serve", "--roles", "recent,audit")
	projectors.WaitCaughtUp(t, "recent", "audit")
	require.Equal(t, stack.Exchanges(3), api.Context(t, "s"))
	require.Equal(t, stack.Questions(3), api.AuditedQuestions(t, "u"))
}

// dev looks after its own PostgreSQL.
func TestDevStartsItsPostgresAgain(t *testing.T) {
	t.Parallel()
	dir := stack.DataDir(t)
	p := stack.Start(t, nil, "dev", "--data-dir", dir)
	p.LinkIdentity(t, "s", "u")
	p.RecordExchange(t, "s", 0)
	p.WaitCaughtUp(t, "audit")
	raw, err := os.ReadFile(filepath.Join(dir, "postgres", "cluster", "postmaster.pid"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.Fields(string(raw))[0])
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	p.RecordExchange(t, "s", 1)
	p.WaitCaughtUp(t, "audit")
	require.Equal(t, stack.Questions(2), p.AuditedQuestions(t, "u"))
	p.WaitLog(t, "PostgreSQL has ended and is started again")
}
