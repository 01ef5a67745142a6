package localpg

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
)

// TestStopsAServerThatOutlivedItsProcess: where the kernel does not end the child with us, the next start does.
func TestStopsAServerThatOutlivedItsProcess(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	cfg := Config{DataDir: Folder(t), Fast: true, Logger: slog.New(slog.NewTextHandler(&said, nil))}
	s := must.Get(Start(t.Context(), cfg))(t)
	orphan := s.proc
	require.NoError(t, s.lock.Unlock()) // as the death of our process would do

	next := must.Get(Start(t.Context(), cfg))(t)
	select {
	case <-orphan.done:
	case <-time.After(hang.Limit):
		require.FailNow(t, "the orphan still runs")
	}
	require.NotEqual(t, orphan.cmd.Process.Pid, next.proc.cmd.Process.Pid)
	require.Contains(t, said.String(), "left running")
	require.NoError(t, next.Stop(t.Context()))
}

// TestKillsAServerThatHangs: a server that ignores every polite signal (here: it is suspended) is killed in the end.
func TestKillsAServerThatHangs(t *testing.T) {
	t.Parallel()
	s := must.Get(Start(t.Context(), Config{DataDir: Folder(t), Fast: true}))(t)
	require.NoError(t, s.proc.cmd.Process.Signal(syscall.SIGSTOP))
	now, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	require.Error(t, s.Stop(now))
	require.Less(t, time.Since(began), 2*killAfter)
	require.NoError(t, s.Restart(t.Context()))
	require.NoError(t, s.Stop(t.Context()))
}

func TestBinariesOfTheVersionThatMadeTheCluster(t *testing.T) {
	t.Parallel()
	fake := func(version string) string {
		dir := t.TempDir()
		script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + "'\n"
		for _, name := range []string{"postgres", "initdb"} {
			must.Program(t, filepath.Join(dir, name), script)
		}
		return dir
	}
	require.Equal(t, 17, must.Get(findBinaries(t.Context(), fake("17beta1"), 0))(t).major)

	_, err := findBinaries(t.Context(), fake("16.2 (Debian 16.2-1)"), 15)
	require.ErrorIs(t, err, ErrForeignCluster)
	require.ErrorContains(t, err, "15")

	_, err = findBinaries(t.Context(), fake("9.6.24"), 0)
	require.ErrorIs(t, err, ErrNotInstalled)
	require.ErrorContains(t, err, "found 9")
}

// TestSocketFolderOfSomeoneElseIsRefused needs a folder of another user, which only root can make.
func TestSocketFolderOfSomeoneElseIsRefused(t *testing.T) {
	t.Parallel()
	s := must.Get(newServer(Config{DataDir: t.TempDir()}))(t)
	require.Less(t, len(s.socket+"/.s.PGSQL.5432"), 107)
	require.NoError(t, os.Mkdir(s.socket, 0o700))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(s.socket)) })
	if os.Geteuid() != 0 {
		require.NoError(t, s.makeSocketDir(), "our own is made anew")
		return
	}
	require.NoError(t, os.Chown(s.socket, 54321, 54321))
	require.ErrorContains(t, s.makeSocketDir(), "54321")
	require.DirExists(t, s.socket)
}

// made is a data folder with a new cluster, which tests copy: to make one takes more than a second.
var made struct {
	once sync.Once
	dir  string
	err  error
}

// Folder returns a data folder with a cluster that no server has used.
func Folder(t testing.TB) string {
	t.Helper()
	made.once.Do(func() {
		if made.dir, made.err = os.MkdirTemp("", "turnledger-localpg-"); made.err != nil {
			return
		}
		var s *Server
		if s, made.err = Start(t.Context(), Config{DataDir: made.dir, Fast: true}); made.err == nil {
			made.err = s.Stop(t.Context())
		}
	})
	require.NoError(t, made.err)
	dir := t.TempDir()
	require.NoError(t, exec.Command("cp", "-a", filepath.Join(made.dir, "cluster"), dir).Run())
	return dir
}

// RemoveMade removes what Folder copies, when the tests have ended.
func RemoveMade() { _ = os.RemoveAll(made.dir) }
