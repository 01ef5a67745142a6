package deployment_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/pg"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// newFullDeployment has every role: two of those that are called, one of those that follow.
func newFullDeployment(t *testing.T) *deployment {
	t.Helper()
	env := append(stack.NewModel(t).Env(), "TURNLEDGER_REDIS_URL="+redistest.Start(t).URL(),
		"TURNLEDGER_POSTGRES_URL="+pg.URL(t))
	return newDeployment(t, map[string]int{roleAPI: 2, roleContext: 2, roleChat: 2, roleRecent: 1, roleAudit: 1,
		roleEraser: 1}, env...)
}

// Each process of each role is stopped and replaced under load. Where a request fails, the client sends it once
// more, at once, to the other process of the role, and that succeeds.
func TestARollingRestartFailsNoRequestThatIsTriedOnceMore(t *testing.T) {
	t.Parallel()
	f := newFullDeployment(t)
	c := startUsers(f, stack.Seed(t), 4, 0)
	rounds := 1
	if stack.Long() {
		rounds = 10
	}
	for range rounds {
		f.restartEachProcess()
	}
	c.finish()
	c.check()
	require.Positive(t, c.retried, "nobody met a process that was away")
}

// Processes of every role are killed at random under load.
func TestKilledAtRandomEveryRoleLosesNothing(t *testing.T) {
	t.Parallel()
	f := newFullDeployment(t)
	seed := stack.Seed(t)
	c := startUsers(f, seed, 4, 3*time.Minute)
	length := time.Duration(0)
	if stack.Long() {
		length = 5 * time.Minute
	}
	kills := f.killAtRandom(rand.New(rand.NewPCG(seed, seed)), length, len(f.processes)+2)
	t.Logf("%d kills", kills)
	c.finish()
	c.check()
}
