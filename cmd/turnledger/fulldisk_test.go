//go:build linux

package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// smallDisk mounts a disk of so many megabytes; it needs root.
func smallDisk(t testing.TB, megabytes int) (dir string, resize func(megabytes int)) {
	t.Helper()
	dir = dataDir(t)
	size := func(mb int) string { return fmt.Sprintf("size=%dm", mb) }
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, size(megabytes)))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir, func(mb int) { require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, size(mb))) }
}

// fill takes what a disk has free; free gives it back.
func fill(t testing.TB, dir string) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "filler")
	f, err := os.Create(name)
	require.NoError(t, err)
	for block := make([]byte, 1<<20); len(block) > 0; {
		if _, err = f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
	require.ErrorIs(t, err, unix.ENOSPC)
	require.NoError(t, f.Close())
	return func() { require.NoError(t, os.Remove(name)) }
}

// large records a large question, or tells that it was not acknowledged.
func (p *process) large(t testing.TB, request string) error {
	t.Helper()
	status, out, err := p.call(t.Context(), http.MethodPost, session("s")+"/turns", map[string]any{"request_id": request, "question_neutral": strings.Repeat("x", 900_000)})
	if err == nil && status >= http.StatusBadRequest {
		err = fmt.Errorf("%d %v", status, out["code"])
	}
	return err
}

// ready asks /readyz.
func (p *process) ready(t testing.TB) (status int, reason string) {
	t.Helper()
	status, out, err := p.call(t.Context(), http.MethodGet, "/readyz", nil)
	require.NoError(t, err)
	reason, _ = out["checks"].(map[string]any)["log"].(map[string]any)["reason"].(string)
	return status, reason
}

// stopsAndGoesOn writes until no write is taken, makes room, and finds all that was acknowledged, and writes that
// go on in the same process.
func stopsAndGoesOn(t *testing.T, p *process, full, room func()) {
	var acknowledged []string
	record := func() error {
		request := fmt.Sprint("r", len(acknowledged))
		err := p.large(t, request)
		if err == nil {
			acknowledged = append(acknowledged, request)
		}
		return err
	}
	// A busy machine may answer 503 to a large write, which is said again.
	goesOn := func() {
		require.Eventually(t, func() bool { return record() == nil }, time.Minute, 100*time.Millisecond, "no write goes through: %s", p.log)
	}
	for range 3 {
		goesOn()
	}
	status, reason := p.ready(t)
	require.Equal(t, http.StatusOK, status)
	full()
	for i := 0; !strings.Contains(reason, "make room, and writes go on by themselves") && i < 500; i++ {
		_ = record()
		status, reason = p.ready(t)
	}
	require.Equal(t, http.StatusServiceUnavailable, status, "the disk is full, and it says that it is ready")
	// A write is refused with the reason, as often as it comes, and what is there is read.
	for range 20 {
		_, out, err := p.call(t.Context(), http.MethodPost, session("s")+"/turns", map[string]any{"request_id": "refused", "question_neutral": "x"})
		require.NoError(t, err)
		require.Equal(t, "log_unavailable", out["code"], out)
		require.Contains(t, out["detail"], "takes no writes")
	}
	p.must(t, http.StatusOK, http.MethodGet, session("s")+"/history", nil)
	p.says(t, "the log takes no writes")
	room()
	goesOn()
	require.Eventually(t, func() bool { status, _ := p.ready(t); return status == http.StatusOK }, 20*time.Second, 50*time.Millisecond)
	for range 3 {
		goesOn()
	}
	var found []string
	out := p.must(t, http.StatusOK, http.MethodGet, session("s")+"/turns?status=all&limit=10000", nil)
	for _, x := range out["turns"].([]any) {
		found = append(found, x.(map[string]any)["request_id"].(string))
	}
	require.Equal(t, acknowledged, found)
}

func TestWritesGoOnWhenAFullDiskHasRoomAgain(t *testing.T) {
	t.Parallel()
	dir, _ := smallDisk(t, 160)
	p := start(t, nil, "serve", "--data-dir", dir, "--roles", "api,context,recent")
	var free func()
	stopsAndGoesOn(t, p, func() { free = fill(t, dir) }, func() { free() })
}

func TestWritesGoOnWhenADiskIsMadeLarger(t *testing.T) {
	t.Parallel()
	dir, resize := smallDisk(t, 40)
	p := start(t, nil, "serve", "--data-dir", dir, "--roles", "api,context,recent")
	stopsAndGoesOn(t, p, func() {}, func() { resize(160) })
	p.says(t, "more than the")
}
