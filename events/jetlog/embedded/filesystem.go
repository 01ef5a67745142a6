package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
)

// ErrFileSystem says that, after a power failure, the file system may keep a rename but lose the data that was written
// before it. Group can't be used there.
var ErrFileSystem = errors.New("a power failure may reorder what this file system keeps")

// ordered are the file systems, by their magic number (statfs(2)), that put the data of a file on disk before a rename
// of the file over another one. They are needed because the server's compaction renames before it syncs, unless the
// server syncs each write by itself. On a file system in memory nothing survives anyway
// (docs/decisions.md#group-sync-only-where-renames-keep-their-order).
var ordered = map[int64]string{
	0xef53:     "ext2/ext3/ext4",
	0x9123683e: "btrfs",
	0x2fc12fc1: "zfs",
	0x01021994: "tmpfs",
}

// CheckFileSystem returns ErrFileSystem if a store directory is on a file system where Group would lose acknowledged
// writes. The directory need not exist yet.
func CheckFileSystem(dir string) error {
	var st syscall.Statfs_t
	err := syscall.Statfs(dir, &st)
	for errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		err = syscall.Statfs(dir, &st)
	}
	if err != nil {
		return fmt.Errorf("look at the file system of %s: %w", dir, err)
	}
	return order(int64(st.Type)) //nolint:unconvert // another width elsewhere
}

func order(magic int64) error {
	if _, ok := ordered[magic&0xffffffff]; !ok {
		return fmt.Errorf("%w (type 0x%x)", ErrFileSystem, magic)
	}
	return nil
}
