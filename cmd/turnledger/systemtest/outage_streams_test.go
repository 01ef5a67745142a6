package systemtest_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// The log's folder was lost, so the views in Redis and PostgreSQL have followed a stream that no longer exists. They
// are shown as failed, no read uses them, and the running process can rebuild them.
func TestViewsOfAnotherStreamAreRebuilt(t *testing.T) {
	t.Parallel()
	pg, redis := pg.Start(t), redistest.Start(t)
	dir := stack.DataDir(t)
	env := []string{"TURNLEDGER_POSTGRES_URL=" + pg.URL(), "TURNLEDGER_REDIS_URL=" + redis.URL()}
	p := stack.Start(t, env, "serve", "--data-dir", dir)
	p.LinkIdentity(t, "old", "u")
	p.RecordTurn(t, "old", "r0", "question 0", "answer 0")
	p.WaitCaughtUp(t, "recent", "audit")
	p.Stop(t)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "nats")))

	p = stack.Start(t, env, "serve", "--data-dir", dir)
	hang.Until(t, func() bool {
		_, out, err := p.Call(t.Context(), http.MethodGet, "/v1/projections", nil)
		require.NoError(t, err)
		failed := 0
		for _, x := range out["projections"].([]any) {
			s := x.(map[string]any)
			if s["state"] == "failed" {
				require.Contains(t, s["last_error"], "turnledger projections rebuild")
				require.NotEqual(t, "0:0", s["position"], "what it holds of the other log")
				require.Nil(t, s["lag_events"], "a position in another log is not level with this one")
				failed++
			}
		}
		return failed == 2
	})
	ready := p.Get(t, "/readyz")["checks"].(map[string]any)
	for check, view := range map[string]string{"redis": "recent", "postgres": "audit"} {
		require.Contains(t, ready[check].(map[string]any)["reason"], "turnledger projections rebuild "+view,
			"the store is not to blame")
	}
	require.Empty(t, p.Context(t, "old"), "the view of another log is not history")
	p.Must(t, http.StatusServiceUnavailable, http.MethodGet, "/v1/identities/u/turns", nil)
	p.LinkIdentity(t, "new", "u")
	p.RecordTurn(t, "new", "r0", "question 0", "answer 0")
	require.Equal(t, stack.Exchanges(1), p.Context(t, "new"))
	for _, name := range []string{"recent", "audit"} {
		code, _, errs := p.Run(t, "projections", "rebuild", name, "--yes")
		require.Equal(t, stack.ExitDone, code, errs)
	}
	p.WaitCaughtUp(t, "recent", "audit")
	require.Equal(t, stack.Questions(1), p.AuditedQuestions(t, "u"))
	code, out, errs := p.Run(t, "projections", "verify")
	require.Equal(t, stack.ExitDone, code, out+errs)
}
