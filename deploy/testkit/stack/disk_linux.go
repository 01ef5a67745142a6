//go:build linux

package stack

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// MountSmallDisk mounts a disk of the given number of megabytes; it needs root.
func MountSmallDisk(t testing.TB, megabytes int) (dir string, resize func(megabytes int)) {
	t.Helper()
	dir = DataDir(t)
	size := func(mb int) string { return fmt.Sprintf("size=%dm", mb) }
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, size(megabytes)))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir, func(mb int) { require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, size(mb))) }
}

// FillDisk fills all free space of a disk with one file, which free removes.
func FillDisk(t testing.TB, dir string) (free func()) {
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
