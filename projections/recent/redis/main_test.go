package redis_test

import (
	"strconv"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/recenttest"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/redis"
)

// A client that was not let in looks for the servers of a cluster once more, half a second later.
func TestMain(m *testing.M) {
	viewtest.Draws(100, 2000) // each history of a property takes Redis about 0.05 s
	leaks.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

//conformance:i79 h20 h24 h62
func TestConformance(t *testing.T) {
	t.Parallel()
	recenttest.Run(t, opener(redistest.Start(t)))
}

// patience is for a machine that is busy with other tests.
const patience = hang.Limit

// opener returns views that share a server and no key.
func opener(server *redistest.Server) recenttest.Open {
	var views atomic.Int64
	return func(t testing.TB, limits recent.Limits, rules conversation.Rules) recenttest.View {
		prefix := "test-" + strconv.FormatInt(views.Add(1), 10)
		v := view(t, redis.Config{
			URL: server.URL(), Prefix: prefix, Limits: limits, Rules: rules, LoadTimeout: patience,
		})
		return recenttest.View{View: v, Reader: v}
	}
}

func view(t testing.TB, cfg redis.Config) *redis.View {
	t.Helper()
	v := must.Get(redis.New(cfg))(t)
	t.Cleanup(v.Close)
	return v
}
