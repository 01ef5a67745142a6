package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A process that is killed while the server writes leaves the beginning of a record that
// nobody was told of at the end of the last block. It is cut off at the next start, and all
// that was acknowledged is there, in order; writes go on, also over the same place.
func TestATornLastBlockLosesNothing(t *testing.T) {
	t.Parallel()
	seed := seedOf(t)
	rng := rand.New(rand.NewPCG(seed, seed))
	dir := dataDir(t)
	said := 0
	for round := range 4 {
		p := start(t, nil, "serve", "--data-dir", dir, "--roles", "api,context")
		if round > 0 {
			require.Equal(t, exchange(said), p.context(t, "s"), "round %d", round)
		}
		for range 1 + rng.IntN(3) {
			p.say(t, "s", said)
			said++
		}
		p.kill(t)
		blocks, err := filepath.Glob(filepath.Join(dir, "nats", "jetstream", "*", "streams", "TURNS-0", "msgs", "*.blk"))
		require.NoError(t, err)
		require.NotEmpty(t, blocks)
		slices.SortFunc(blocks, func(a, b string) int { return len(a) - len(b) })
		raw, err := os.ReadFile(blocks[len(blocks)-1])
		require.NoError(t, err)
		require.NotEmpty(t, raw)
		// A whole record would be an event that is there although its writer was never told.
		torn := raw[:1+rng.IntN(min(len(raw), 60))]
		if rng.IntN(2) == 0 {
			torn = []byte(fmt.Sprintf("%0*d", 1+rng.IntN(400), 0))
		}
		f, err := os.OpenFile(blocks[len(blocks)-1], os.O_APPEND|os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.Write(torn)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	p := start(t, nil, "serve", "--data-dir", dir, "--roles", "api,context")
	require.Equal(t, exchange(said), p.context(t, "s"))
	p.say(t, "s", said)
	p.stop(t)
}

// A second process on a data directory refuses, and says what to do; the first one goes on,
// and the next one may start once it has been killed.
func TestTwoProcessesOnOneDataDirectory(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	first := start(t, nil, "serve", "--data-dir", dir)
	first.say(t, "s", 0)
	for _, verb := range []string{"serve", "dev"} {
		second := launch(t, nil, verb, "--data-dir", dir)
		require.Error(t, second.cmd.Wait(), verb)
		require.Equal(t, exitFailed, second.cmd.ProcessState.ExitCode(), "%s: %s", verb, second.log)
		require.Contains(t, second.log.String(), "in use by another process", verb)
		require.Contains(t, second.log.String(), "TURNLEDGER_DATA_DIR", verb)
	}
	first.say(t, "s", 1)
	first.kill(t)
	third := start(t, nil, "serve", "--data-dir", dir)
	require.Equal(t, exchange(2), third.context(t, "s"))
}
