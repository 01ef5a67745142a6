//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// The disk gets full and has room again, and the server begins JetStream anew in place. Readers and writers call it
// without pause meanwhile, and a seed decides how long each logged step takes. Each read shows everything that was
// acknowledged, or is 503.
func TestANewBeginningUnderLoadIsSeenAsTheWholeLogOr503(t *testing.T) {
	t.Parallel()
	eachSeed(t, func(t *testing.T, seed uint64) {
		t.Parallel()
		rng := rand.New(rand.NewPCG(seed, 14))
		dir, _ := stack.MountSmallDisk(t, 64)
		p := launchSlowly(t, seed, "--data-dir", dir)
		recordSessions(t, p)
		w := &witness{t: t, seed: seed, before: 4}
		w.ask(func() bool { return true }, p.URL)
		w.goOn()
		turn := func() { require.NoError(t, p.Cmd.Process.Signal(syscall.SIGUSR1)) }
		moment(rng, 50*time.Millisecond)
		turn()
		free := stack.FillDisk(t, dir)
		p.WaitLog(t, "no turn can be recorded")
		moment(rng, 300*time.Millisecond)
		free()
		p.WaitLog(t, "JetStream is begun anew")
		p.WaitLog(t, "the log takes writes again")
		w.goOn()
		turn()
		w.goOn()
		w.check(p.URL, stack.Exchanges(2))
		p.Stop(t)
	})
}

// launchSlowly starts this program as a server of its own. nats-server has data races where JetStream is begun anew
// (2.15), for which the process does not fail.
func launchSlowly(t *testing.T, seed uint64, args ...string) *stack.Process {
	self := must.Get(os.Executable())(t)
	env := []string{fmt.Sprint(slowSeed, "=", seed), "GORACE=exitcode=0"}
	p := stack.LaunchProgram(t, self, stack.FreeAddress(t), env, slowArgs(seed, args...)...)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d\n%s", seed, p.Log)
		}
	})
	p.WaitReady(t)
	return p
}
