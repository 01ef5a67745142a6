package embedded_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
)

// staged is a server whose batches are staged in a memory of the test's own, and a stream of the log.
type staged struct {
	*embedded.Server
	cfg embedded.Config
	nc  *nats.Conn
	js  jetstream.JetStream
}

func stagedIn(t *testing.T, cfg embedded.Config) *staged {
	t.Helper()
	s := &staged{Server: start(t, cfg), cfg: cfg}
	s.nc = must.Get(s.Connect())(t)
	t.Cleanup(s.nc.Close)
	s.js = must.Get(jetstream.New(s.nc))(t)
	must.Get(s.js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "TURNS-0", Subjects: []string{"t.>"},
		AllowAtomicPublish: true}))(t)
	s.StageInMemory()
	return s
}

func (s *staged) batches() string {
	return filepath.Join(s.cfg.Dir, "jetstream", "$G", "streams", "TURNS-0", "batches")
}

// send sends a message of a batch, and returns the server's answer: "" while the batch is not committed.
func (s *staged) send(t *testing.T, batch string, n int, commit, text string) string {
	t.Helper()
	m := nats.NewMsg("t." + batch)
	m.Header.Set("Nats-Batch-Id", batch)
	m.Header.Set("Nats-Batch-Sequence", fmt.Sprint(n))
	if commit != "" {
		m.Header.Set("Nats-Batch-Commit", commit)
	}
	m.Data = []byte(text)
	ctx, cancel := context.WithTimeout(t.Context(), hang.Limit)
	defer cancel()
	return string(must.Get(s.nc.RequestMsgWithContext(ctx, m))(t).Data)
}

// whole publishes a batch of two.
func (s *staged) whole(t *testing.T, batch string) {
	t.Helper()
	require.Empty(t, s.send(t, batch, 1, "", "one"))
	require.Contains(t, s.send(t, batch, 2, "1", "two"), `"count":2`)
}

// texts returns what the stream holds.
func (s *staged) texts(t *testing.T) (out []string) {
	t.Helper()
	stream := must.Get(s.js.Stream(t.Context(), "TURNS-0"))(t)
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		out = append(out, string(must.Get(stream.GetMsg(t.Context(), seq))(t).Data))
	}
	return out
}

// files returns the files below a folder, without those that links lead to.
func files(t *testing.T, dir string) (out []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			out = append(out, path)
		}
		return nil
	}))
	return out
}

func onDisk(t *testing.T, batches string) {
	t.Helper()
	info, err := os.Lstat(batches)
	if err == nil {
		require.True(t, info.IsDir(), "%s is %s", batches, info.Mode())
	} else {
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
}

func TestBatchesAreStagedInMemory(t *testing.T) {
	t.Parallel()
	for _, mode := range []embedded.Sync{embedded.Group, embedded.None} {
		cfg := embedded.Config{Dir: t.TempDir(), Sync: mode, Memory: natstest.Memory(t)}
		s := stagedIn(t, cfg)
		folder := must.Get(os.Readlink(s.batches()))(t)
		require.Equal(t, fs.ModeDir|0o700, must.Get(os.Stat(folder))(t).Mode(), "nobody else may read what is staged")
		require.Equal(t, cfg.Memory, filepath.Dir(folder))
		require.Empty(t, s.send(t, "a", 1, "", "one"))
		require.NotEmpty(t, files(t, folder))
		for _, name := range files(t, cfg.Dir) {
			require.NotContains(t, name, "batches"+string(filepath.Separator))
		}
		s.StageInMemory() // as Run does each second
		require.Contains(t, s.send(t, "a", 2, "1", "two"), `"count":2`)
		require.Empty(t, files(t, folder), "nothing is left of a batch that was committed")
		require.Equal(t, []string{"one", "two"}, s.texts(t))
		s.Stop()
		require.NoDirExists(t, folder)
		require.NoFileExists(t, filepath.Join(cfg.Dir, "turnledger.staging"))
		must.Fail(os.Lstat(s.batches()))(t, fs.ErrNotExist)
		s = stagedIn(t, cfg)
		s.whole(t, "b")
		require.Equal(t, []string{"one", "two", "one", "two"}, s.texts(t))
	}
}

// With Always, a power cut must find what was staged.
func TestAlwaysStagesOnTheDisk(t *testing.T) {
	t.Parallel()
	cfg := embedded.Config{Dir: t.TempDir(), Sync: embedded.Always, Memory: natstest.Memory(t)}
	s := stagedIn(t, cfg)
	s.whole(t, "a")
	onDisk(t, s.batches())
	require.Empty(t, files(t, cfg.Memory))
}

// A server that was killed while it committed a batch ends it at its next start: with the sync of before, or another.
// It does not believe a folder that others may enter.
func TestABatchThatAKillBrokeOffIsEnded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		next embedded.Sync
		mode fs.FileMode
		want []string
	}{
		{embedded.Group, 0o700, []string{"one", "two"}},
		{embedded.Always, 0o700, []string{"one", "two"}},
		{embedded.Group, 0o755, []string{"one"}},
	} {
		cfg := embedded.Config{Dir: t.TempDir(), Sync: embedded.Group, Memory: natstest.Memory(t)}
		s := stagedIn(t, cfg)
		folder := must.Get(os.Readlink(s.batches()))(t)
		require.Empty(t, s.send(t, "a", 1, "", "one"))
		names := must.Get(os.ReadDir(folder))(t)
		require.Len(t, names, 1)
		store := names[0].Name()
		// A stream of the store's name has the same files as what the server stages.
		must.Get(s.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: store, Subjects: []string{"s"},
			AllowAtomicPublish: true}))(t)
		for n, text := range []string{"one", "two"} {
			m := nats.NewMsg("s")
			m.Header.Set("Nats-Batch-Id", "a")
			m.Header.Set("Nats-Batch-Sequence", fmt.Sprint(n+1))
			if n == 1 {
				m.Header.Set("Nats-Batch-Commit", "1")
			}
			m.Data = []byte(text)
			must.Get(s.nc.RequestMsgWithContext(t.Context(), m))(t)
		}
		require.Contains(t, s.send(t, "a", 2, "1", "two"), `"count":2`)
		s.nc.Close()
		s.Stop()

		// The kill: the second message is not in the stream yet, all of the batch is staged, and nothing was tidied up.
		streams := filepath.Join(cfg.Dir, "jetstream", "$G", "streams")
		block := filepath.Join(streams, "TURNS-0", "msgs", "1.blk")
		raw := must.Get(os.ReadFile(block))(t)
		second := strings.LastIndex(string(raw), "t.a") - 22 // the record's head
		require.Positive(t, second)
		require.NoError(t, os.WriteFile(block, raw[:second], 0o600))
		require.NoError(t, os.Remove(filepath.Join(streams, "TURNS-0", "msgs", "index.db")))
		require.NoError(t, os.Mkdir(folder, 0o700))
		require.NoError(t, os.CopyFS(filepath.Join(folder, store), os.DirFS(filepath.Join(streams, store))))
		require.NoError(t, os.RemoveAll(filepath.Join(streams, store)))
		require.NoError(t, os.Symlink(folder, s.batches()))
		require.NoError(t, os.WriteFile(filepath.Join(cfg.Dir, "turnledger.staging"), []byte(folder), 0o600))

		require.NoError(t, os.Chmod(folder, c.mode))

		cfg.Sync = c.next
		s = stagedIn(t, cfg)
		require.Equal(t, c.want, s.texts(t))
		if c.mode == 0o700 {
			require.Empty(t, files(t, cfg.Memory), "what was staged is gone from the memory")
		}
		s.whole(t, "b")
		require.Len(t, s.texts(t), len(c.want)+2)
		if c.next == embedded.Always {
			require.NoDirExists(t, folder)
			onDisk(t, s.batches())
		}
	}
}

// After the machine was started again a link leads nowhere, or to a folder that somebody else has made.
func TestALinkToNowhereOrToAnotherIsRemoved(t *testing.T) {
	t.Parallel()
	cfg := embedded.Config{Dir: t.TempDir(), Sync: embedded.Group, Memory: natstest.Memory(t)}
	open := filepath.Join(cfg.Memory, "turnledger-open")
	require.NoError(t, os.Mkdir(open, 0o700))
	require.NoError(t, os.Chmod(open, 0o755))
	planted := filepath.Join(cfg.Memory, "turnledger-link")
	require.NoError(t, os.Symlink(t.TempDir(), planted))
	elsewhere := t.TempDir()
	s := stagedIn(t, cfg)
	for i, to := range []string{filepath.Join(cfg.Memory, "turnledger-gone"), open, planted, elsewhere} {
		s.nc.Close()
		s.Stop()
		require.NoError(t, os.Symlink(to, s.batches()))
		require.NoError(t, os.WriteFile(filepath.Join(cfg.Dir, "turnledger.staging"), []byte(to), 0o600))
		s = stagedIn(t, cfg)
		require.NotEqual(t, to, must.Get(os.Readlink(s.batches()))(t))
		s.whole(t, fmt.Sprint("b", i))
		require.Len(t, s.texts(t), 2*(i+1))
	}
	require.DirExists(t, open, "what is not ours is left alone")
	require.DirExists(t, elsewhere)
}

// The folder may be removed while the server runs, or the memory fill up.
func TestStagingGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	cfg := embedded.Config{Dir: t.TempDir(), Sync: embedded.Group, Memory: t.TempDir()}
	require.NoError(t, syscall.Mount("tmpfs", cfg.Memory, "tmpfs", 0, "size=24m"))
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(cfg.Memory, syscall.MNT_DETACH)) })
	s := stagedIn(t, cfg)
	folder := must.Get(os.Readlink(s.batches()))(t)
	require.NoError(t, os.RemoveAll(folder))
	s.StageInMemory()
	s.whole(t, "a")
	another := must.Get(os.Readlink(s.batches()))(t)
	require.NotEqual(t, folder, another)

	ballast := filepath.Join(cfg.Memory, "ballast")
	require.NoError(t, os.WriteFile(ballast, make([]byte, 12<<20), 0o600))
	s.StageInMemory()
	s.whole(t, "b")
	require.NoError(t, os.WriteFile(ballast, make([]byte, 20<<20), 0o600))
	require.Empty(t, s.send(t, "c", 1, "", "lost"))
	require.NotEmpty(t, files(t, another))
	s.StageInMemory()
	onDisk(t, s.batches())
	s.StageInMemory()
	require.Empty(t, files(t, another), "a batch that was begun in the memory is not left there")
	s.whole(t, "d")
	onDisk(t, s.batches())
	require.Empty(t, files(t, another))
	require.NoError(t, os.Remove(ballast))
	s.StageInMemory()
	require.NoError(t, must.Err(os.Readlink(s.batches())), "there is room again")
	s.whole(t, "e")
	require.Len(t, s.texts(t), 8)
}

func TestADiskIsNoMemory(t *testing.T) {
	t.Parallel()
	for _, where := range []string{t.TempDir(), filepath.Join(t.TempDir(), "missing")} {
		s := stagedIn(t, embedded.Config{Dir: t.TempDir(), Sync: embedded.Group, Memory: where})
		s.whole(t, "a")
		onDisk(t, s.batches())
	}
}

// JetStream drops the link when it reads its streams, and a stream may be made at any time.
func TestStreamsAreStagedAgain(t *testing.T) {
	t.Parallel()
	s := stagedIn(t, embedded.Config{Dir: t.TempDir(), Sync: embedded.Group, Memory: natstest.Memory(t),
		LookEvery: time.Millisecond})
	folder := must.Get(os.Readlink(s.batches()))(t)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "left"), nil, 0o600))
	require.NoError(t, s.Reopen())
	require.Empty(t, files(t, folder))
	require.Equal(t, folder, must.Get(os.Readlink(s.batches()))(t))
	s.whole(t, "a")

	must.Get(s.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "TURNS-1", Subjects: []string{"u"}}))(t)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	defer running.Wait()
	defer stop()
	hang.Until(t, func() bool {
		to, err := os.Readlink(strings.Replace(s.batches(), "TURNS-0", "TURNS-1", 1))
		return err == nil && to == folder
	})
}
