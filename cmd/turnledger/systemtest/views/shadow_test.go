package views_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/cmd/turnledger/systemtest/stack"
	"github.com/turnledger/turnledger/projections/recent/redis/redistest"
)

// TestASecondRecentViewIsComparedAndNeverAnswers empties the second view: reads go on as
// they were.
func TestASecondRecentViewIsComparedAndNeverAnswers(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := stack.Serve(t, []string{"TURNLEDGER_RECENT_SHADOW=" + redis.URL()}, "--roles", "api,context,recent")
	p.RecordTurn(t, "s", "r1", "a secret question", "an answer")
	metric := func(result string) bool {
		require.Len(t, p.Context(t, "s"), 2)
		return strings.Contains(p.Metrics(t), `turnledger_recent_shadow_reads_total{result="`+result+`"}`)
	}
	require.Eventually(t, func() bool { return metric("same") }, 20*time.Second, 20*time.Millisecond)
	require.NotContains(t, p.Metrics(t), `result="different"`)
	redis.Restart(redistest.Empty)
	require.Eventually(t, func() bool { return metric("behind") || metric("failed") }, 20*time.Second,
		20*time.Millisecond)
	require.NotContains(t, p.Log.String(), "secret")
}
