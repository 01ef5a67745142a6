package systemtest_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// A process that is killed while the server writes can leave half a record at the end of the last block; that record
// was never acknowledged. The next start cuts it off. Everything that was acknowledged is there, in order, and
// writes go on at the same place.
func TestATornLastBlockLosesNothing(t *testing.T) {
	t.Parallel()
	seed := stack.Seed(t)
	rng := rand.New(rand.NewPCG(seed, seed))
	dir := stack.DataDir(t)
	said := 0
	for round := range 3 {
		p := stack.Start(t, nil, "serve", "--data-dir", dir, "--roles", "api,context")
		if round > 0 {
			require.Equal(t, stack.Exchanges(said), p.Context(t, "s"), "round %d", round)
		}
		for range 1 + rng.IntN(3) {
			p.RecordExchange(t, "s", said)
			said++
		}
		p.Kill(t)
		blocks, err := filepath.Glob(filepath.Join(dir, "nats", "jetstream", "*", "streams", "TURNS-0", "msgs",
			"*.blk"))
		require.NoError(t, err)
		require.NotEmpty(t, blocks)
		slices.SortFunc(blocks, func(a, b string) int { return len(a) - len(b) })
		raw, err := os.ReadFile(blocks[len(blocks)-1])
		require.NoError(t, err)
		require.NotEmpty(t, raw)
		// A whole record would be an event, though one that was never acknowledged.
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
	p := stack.Start(t, nil, "serve", "--data-dir", dir, "--roles", "api,context")
	require.Equal(t, stack.Exchanges(said), p.Context(t, "s"))
	p.RecordExchange(t, "s", said)
	p.Stop(t)
}

// A second process on a data directory does not start, and says what to do. The first one goes on; once it was killed,
// another one can start.
func TestTwoProcessesOnOneDataDirectory(t *testing.T) {
	t.Parallel()
	dir := stack.DataDir(t)
	first := stack.Start(t, nil, "serve", "--data-dir", dir)
	first.RecordExchange(t, "s", 0)
	for _, verb := range []string{"serve", "dev"} {
		second := stack.Launch(t, nil, verb, "--data-dir", dir)
		require.Error(t, second.Cmd.Wait(), verb)
		require.Equal(t, stack.ExitFailed, second.Cmd.ProcessState.ExitCode(), "%s: %s", verb, second.Log)
		require.Contains(t, second.Log.String(), "in use by another process", verb)
		require.Contains(t, second.Log.String(), "TURNLEDGER_DATA_DIR", verb)
	}
	first.RecordExchange(t, "s", 1)
	first.Kill(t)
	third := stack.Start(t, nil, "serve", "--data-dir", dir)
	require.Equal(t, stack.Exchanges(2), third.Context(t, "s"))
}
