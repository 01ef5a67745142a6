package recenttest_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/recenttest"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/memory"
	"github.com/turnledger/turnledger/projections/recent/redis"
)

func TestMain(m *testing.M) {
	viewtest.AtMost(2000) // each history of a property takes Redis about 0.05 s
	leaks.VerifyTestMain(m)
}

// TestBackendsAgree: both backends get the same logs in the same delivery.
//
//conformance:i79 h20 h21 h24 h62
func TestBackendsAgree(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var views atomic.Int64
	recenttest.Property(t,
		func(_ testing.TB, limits recent.Limits, rules conversation.Rules) recenttest.View {
			v := memory.New(limits, rules, nil)
			return recenttest.View{View: v, Reader: v}
		},
		func(t testing.TB, limits recent.Limits, rules conversation.Rules) recenttest.View {
			prefix := "agree-" + strconv.FormatInt(views.Add(1), 10)
			v, err := redis.New(redis.Config{URL: server.URL(), Prefix: prefix, Limits: limits, Rules: rules,
				LoadTimeout: time.Minute})
			require.NoError(t, err)
			t.Cleanup(v.Close)
			return recenttest.View{View: v, Reader: v}
		})
}
