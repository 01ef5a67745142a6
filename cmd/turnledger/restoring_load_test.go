package main

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// Readers and writers ask without pause while a backup becomes the log of the server that they ask, and each step of
// the server takes its own time, drawn from a seed: all that the server does on the way is logged, and the log is slow.
// Each reader is told the state of before, 503 or the restored state, and never again the former after the latter.
// What was erased since the backup is shown to nobody, and every write that was acknowledged is in the log that stays.
func TestARestoreUnderLoadIsSeenAsBeforeOrAfter(t *testing.T) {
	t.Parallel()
	from := stack.TakeBackup(t)
	eachSeed(t, 4, func(t *testing.T, seed uint64) { restoreUnderLoad(t, from, seed) })
}

func restoreUnderLoad(t *testing.T, from stack.Backup, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 14))
	s := serveSlowly(t, seed, "--data-dir", stack.DataDir(t))
	w := &witness{t: t, seed: seed}
	w.ask(func() bool { return strings.Contains(s.log.String(), "a backup is being restored") }, s.URL)
	moment(rng, 50*time.Millisecond)
	s.log.slow.Store(true)
	code, _, errs := s.Run(t, "restore", from.Dir, "--erasures", from.Erasures)
	restored, want := code == exitDone, []any{}
	if restored {
		w.changed.Store(true)
		want = stack.Exchanges(2)
	} else {
		require.Contains(t, errs, "log_not_empty")
	}
	s.WaitReady(t)
	s.log.slow.Store(false)
	<-time.After(50 * time.Millisecond)
	moment(rng, 50*time.Millisecond)
	w.check(s.URL, want)
	require.NotContains(t, s.log.String(), "begun anew", "the server was not held while its streams were replaced")
	t.Logf("restored: %v", restored)
}
