package main

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// A replay holds a part of the log at a time: of a log that is 48 MB longer it takes no more memory. (A Parquet file is written a
// row group at a time: services/export.)
func TestAReplayTakesNoMoreMemoryOfALongLog(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "serve", "--data-dir", dataDir(t), "--roles", "api,context")
	p.long(t, 0, 50)
	lines, table := p.replayed(t, "jsonl", 50), p.replayed(t, "csv", 50)
	p.long(t, 50, 800)
	require.Less(t, p.replayed(t, "jsonl", 800)-lines, int64(24<<20))
	require.Less(t, p.replayed(t, "csv", 800)-table, int64(24<<20))
}

// long records turns with questions of 64 KB.
func (p *process) long(t testing.TB, from, to int) {
	t.Helper()
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(32)
	for n := from; n < to; n++ {
		g.Go(func() error {
			random := make([]byte, 32<<10)                                       // which no format makes shorter
			_, _ = rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)}).Read(random) // never fails
			body := map[string]any{"request_id": "r", "question_neutral": hex.EncodeToString(random)}
			status, out, err := p.call(ctx, http.MethodPost, session(fmt.Sprint("s", n))+"/turns", body)
			if err == nil && status != http.StatusCreated {
				err = fmt.Errorf("%d %v", status, out["code"])
			}
			return err
		})
	}
	require.NoError(t, g.Wait())
}

// replayed gives the most memory that a replay of so many turns took, in bytes. It follows, so that it is there to be asked; what
// the system tells of a process that has ended counts its parent's in.
func (p *process) replayed(t testing.TB, form string, turns int64) int64 {
	t.Helper()
	name := filepath.Join(t.TempDir(), "log")
	cmd := p.verbCommand(t, "replay", "--follow", "--format", form, "-o", name)
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool {
		info, err := os.Stat(name)
		return err == nil && info.Size() > turns*64<<10
	}, time.Minute, 20*time.Millisecond)
	most := memoryOf(t, cmd.Process.Pid, "VmHWM")
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait())
	return most
}
