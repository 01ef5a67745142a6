package main

import (
	"context"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

func TestMain(m *testing.M) {
	if seed, err := strconv.ParseUint(os.Getenv(slowSeed), 10, 64); err == nil {
		os.Exit(runSlowly(seed))
	}
	stack.Main(m)
}

// slowSeed names the variable that makes this program turnledger itself, with a slow log.
const slowSeed = "TURNLEDGER_TEST_SLOW_SEED"

// runSlowly is main with a log that is slow from the first SIGUSR1 on, until the next.
func runSlowly(seed uint64) int {
	log := &slowLog{rng: rand.New(rand.NewPCG(seed, 15)), to: os.Stderr}
	turns := make(chan os.Signal, 1)
	signal.Notify(turns, syscall.SIGUSR1)
	go func() {
		for range turns {
			log.slow.Store(!log.slow.Load())
		}
	}()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return run(ctx, os.Args[1:], io.Discard, log)
}
