package deployment_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// fedPartitions returns the partitions of a view that a process feeds now.
func fedPartitions(t testing.TB, p *stack.Process, name string) (own []int) {
	t.Helper()
	for _, x := range p.Get(t, "/v1/projections")["projections"].([]any) {
		if s := x.(map[string]any); s["name"] == name && s["state"] == "live" {
			own = append(own, int(s["partition"].(float64)))
		}
	}
	return own
}

// Two processes share the eight partitions of both views. One is killed under load; the
// other has all of them within 10 s, and both views hold every turn once.
func TestTwoProcessesShareThePartitionsAndOneIsKilled(t *testing.T) {
	t.Parallel()
	nats, redis, pg := stack.FreeAddress(t), redistest.Start(t), pg.URL(t)
	env := []string{"TURNLEDGER_PARTITIONS=8", "TURNLEDGER_REDIS_URL=" + redis.URL(), "TURNLEDGER_POSTGRES_URL=" + pg}
	api := stack.Serve(t, append(stack.ServeNATS(nats), env...), "--roles", "api,context")
	var feeders [2]*stack.Process
	for i := range feeders {
		feeders[i] = stack.Start(t, append(stack.JoinNATS(nats), env...), "serve", "--roles", "audit,recent")
	}
	for _, view := range []string{"audit", "recent"} {
		hang.Until(t, func() bool {
			a, b := fedPartitions(t, feeders[0], view), fedPartitions(t, feeders[1], view)
			return len(a) == 4 && len(b) == 4 && len(union(a, b)) == 8
		}, "%s is not shared out", view)
	}
	const sessions = 24
	for s := range sessions {
		api.LinkIdentity(t, fmt.Sprint("s", s), fmt.Sprint("u", s))
		api.RecordExchange(t, fmt.Sprint("s", s), 0)
		if s == sessions/2 {
			feeders[0].Kill(t)
		}
	}
	killed := time.Now()
	for _, view := range []string{"audit", "recent"} {
		hang.Until(t, func() bool {
			return len(fedPartitions(t, feeders[1], view)) == 8
		}, "%s is not taken over: %s", view, feeders[1].Log)
	}
	t.Logf("taken over %s after the load ended", time.Since(killed).Round(100*time.Millisecond))
	for s := range sessions {
		api.RecordExchange(t, fmt.Sprint("s", s), 1)
	}
	feeders[1].WaitCaughtUp(t, "audit", "recent")
	for s := range sessions {
		require.Equal(t, stack.Questions(2), api.AuditedQuestions(t, fmt.Sprint("u", s)))
		require.Equal(t, stack.Exchanges(2), api.Context(t, fmt.Sprint("s", s)))
	}

	// The log is gone: nobody can know how far behind the views are, so none may be shown with a lag of 0.
	api.Kill(t)
	for _, x := range feeders[1].Get(t, "/v1/projections")["projections"].([]any) {
		s := x.(map[string]any)
		require.Nil(t, s["head"])
		require.Nil(t, s["lag_events"])
		require.Nil(t, s["lag_seconds"])
		require.NotEqual(t, "live", s["state"])
		require.NotEmpty(t, s["last_error"])
	}
	status, out, _ := feeders[1].Run(t, "projections", "list")
	require.Zero(t, status)
	require.Contains(t, out, "unknown")
}

func union(lists ...[]int) map[int]bool {
	out := map[int]bool{}
	for _, l := range lists {
		for _, k := range l {
			out[k] = true
		}
	}
	return out
}
