package systemtest_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// Redis stops and comes back empty, and then PostgreSQL stops.
func TestWithAStoreStoppedTheNextContextIsRight(t *testing.T) {
	t.Parallel()
	redis, pg := redistest.Start(t), pg.Start(t)
	p := stack.Serve(t, []string{"TURNLEDGER_REDIS_URL=" + redis.URL(), "TURNLEDGER_POSTGRES_URL=" + pg.URL()})
	p.LinkIdentity(t, "s", "u")
	p.RecordExchange(t, "s", 0)
	p.WaitCaughtUp(t, "recent", "audit")
	require.Equal(t, stack.Questions(1), p.AuditedQuestions(t, "u"))
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
	p.WaitCaughtUp(t, "recent", "audit")
	require.Equal(t, stack.Exchanges(4), p.Context(t, "s"))

	require.NoError(t, pg.Stop(t.Context()))
	p.RecordExchange(t, "s", 4)
	out := p.Must(t, http.StatusServiceUnavailable, http.MethodGet, "/v1/identities/u/turns", nil)
	require.Equal(t, "audit_unavailable", out["code"])
	require.NoError(t, pg.Restart(t.Context()))
	p.WaitCaughtUp(t, "audit")
	require.Equal(t, stack.Questions(5), p.AuditedQuestions(t, "u"))
}

// The projectors are a process of their own here, and are killed. The other process tells of their views, and offers no
// rebuild of them.
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
	require.Equal(t, []string{"audit", "recent"}, viewsIn(t, api, "not_fed"))
	refused := api.Must(t, http.StatusConflict, http.MethodPost, "/v1/projections/audit/rebuild", nil)
	require.Equal(t, "projection_not_fed", refused["code"])
	projectors.Kill(t)
	api.RecordExchange(t, "s", 1)
	api.RecordExchange(t, "s", 2)
	projectors = stack.Start(t, outside, "serve", "--roles", "recent,audit")
	projectors.WaitCaughtUp(t, "recent", "audit")
	require.Equal(t, stack.Exchanges(3), api.Context(t, "s"))
	require.Equal(t, stack.Questions(3), api.AuditedQuestions(t, "u"))
}
