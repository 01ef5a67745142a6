package main

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/projections/audit/pgtest"
	"github.com/turnledger/turnledger/projections/recent/redis/redistest"
)

// wholeFleet has every role: two of those that are called, one of those that follow.
func wholeFleet(t *testing.T) *fleet {
	t.Helper()
	env := append(newScripted(t).env(), "TURNLEDGER_REDIS_URL="+redistest.Start(t).URL(), "TURNLEDGER_POSTGRES_URL="+pgtest.URL(t))
	return newFleet(t, map[role]int{roleAPI: 2, roleContext: 2, roleChat: 2, roleRecent: 1, roleAudit: 1, roleEraser: 1}, env...)
}

// seeds gives a seed of the run, which a failure names.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	t.Log("seed", seed)
	return seed
}

// long tells whether the long form of a test is asked for.
func long() bool { return os.Getenv("TURNLEDGER_TORTURE") != "" }

// Every process of every role is stopped and another one started under load, and no
// request fails that its client tries once more, at once, at the other process.
func TestARollingRestartFailsNoRequestThatIsTriedOnceMore(t *testing.T) {
	t.Parallel()
	f := wholeFleet(t)
	c := gather(f, seedOf(t), 4, 0)
	rounds := 1
	if long() {
		rounds = 10
	}
	for range rounds {
		f.roll()
	}
	c.disperse()
	c.check()
	require.Positive(t, c.retried, "nobody met a process that was away")
}

// Processes of every role are killed at random under load.
func TestKilledAtRandomEveryRoleLosesNothing(t *testing.T) {
	t.Parallel()
	f := wholeFleet(t)
	seed := seedOf(t)
	c := gather(f, seed, 4, time.Minute)
	length := time.Duration(0)
	if long() {
		length = 5 * time.Minute
	}
	kills := f.killAtRandom(rand.New(rand.NewPCG(seed, seed)), length, len(f.members)+2)
	t.Logf("%d kills", kills)
	c.disperse()
	c.check()
}
