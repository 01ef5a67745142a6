//go:build linux

package main

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/turnledger/turnledger/cmd/turnledger/systemtest/stack"
)

// The disk is full, and has room again, so that the server begins JetStream anew in place, under readers and writers
// who don't pause, and each step that is logged takes its own time, drawn from a seed. Each reader is told all that was
// acknowledged, or 503.
func TestANewBeginningUnderLoadIsSeenAsTheWholeLogOr503(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root mounts a small disk")
	}
	t.Parallel()
	eachSeed(t, 3, func(t *testing.T, seed uint64) {
		t.Parallel()
		rng := rand.New(rand.NewPCG(seed, 14))
		dir, _ := stack.MountSmallDisk(t, 64)
		s := serveSlowly(t, seed, "--data-dir", dir)
		s.recordSessions()
		w := &witness{t: t, seed: seed, before: 4}
		w.ask(func() bool { return true }, s.URL)
		w.goOn()
		moment(rng, 50*time.Millisecond)
		s.log.slow.Store(true)
		free := stack.FillDisk(t, dir)
		s.log.waitFor(t, "no turn can be recorded")
		moment(rng, 300*time.Millisecond)
		free()
		s.log.waitFor(t, "JetStream is begun anew")
		s.log.waitFor(t, "the log takes writes again")
		w.goOn()
		s.log.slow.Store(false)
		w.goOn()
		w.check(s.URL, stack.Exchanges(2))
	})
}
