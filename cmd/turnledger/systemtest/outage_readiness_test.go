package systemtest_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// /readyz names a dependency that is away and since when, and never its address. The process stays ready.
func TestReadinessTellsWhatIsOut(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := stack.Serve(t, []string{"TURNLEDGER_REDIS_URL=" + redis.URL()})
	require.Equal(t, "ok", p.Get(t, "/readyz")["status"])
	before := time.Now().Add(-time.Second)
	redis.Stop()
	var got map[string]any
	hang.Until(t, func() bool {
		got = p.Get(t, "/readyz")
		return got["status"] == "degraded"
	})
	since := func() string {
		return p.Get(t, "/readyz")["checks"].(map[string]any)["redis"].(map[string]any)["since"].(string)
	}
	first := since()
	at, err := time.Parse(time.RFC3339Nano, first)
	require.NoError(t, err)
	require.True(t, at.After(before) && at.Before(time.Now()), first)
	require.Equal(t, first, since())
	check := got["checks"].(map[string]any)["redis"].(map[string]any)
	require.Equal(t, "Redis does not answer, or may not be used", check["reason"])
	require.True(t, slices.Contains([]int{2, 3}, len(check)))
	resp, err := http.Get(p.URL + "/metrics")
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	var raw strings.Builder
	_, err = io.Copy(&raw, resp.Body)
	require.NoError(t, err)
	require.Contains(t, raw.String(), `turnledger_dependency_up{dependency="redis"} 0`)
	require.Contains(t, raw.String(), `turnledger_dependency_up{dependency="log"} 1`)
	require.Contains(t, raw.String(), `turnledger_log_head_sequence{partition="0"}`)
}
