// Package disktest is a disk for tests that knows what would survive a power cut.
package disktest

import (
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/stretchr/testify/require"
)

// Disk notes what was synced: the size of each file by its inode, and the names in each folder.
type Disk struct {
	mu    sync.Mutex
	sizes map[uint64]int64
	names map[string]map[string]uint64
	syncs int
}

// New returns a disk on which nothing was synced yet.
func New() *Disk { return &Disk{sizes: map[uint64]int64{}, names: map[string]map[string]uint64{}} }

func inode(info fs.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }

// Fsync notes a sync, in the place of (*os.File).Sync.
func (d *Disk) Fsync(f *os.File) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.syncs++
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.IsDir() {
		d.sizes[inode(info)] = info.Size()
		return nil
	}
	names := map[string]uint64{}
	entries, err := os.ReadDir(f.Name())
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			names[e.Name()] = inode(info)
		}
	}
	d.names[f.Name()] = names
	return err
}

// Syncs counts the syncs.
func (d *Disk) Syncs() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.syncs
}

// Durable requires that every block in a folder, as it is now, would survive a power cut whole, and returns the number
// of blocks. Nothing may write to the folder meanwhile.
func (d *Disk) Durable(t require.TestingT, dir string) (blocks int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".blk") {
			continue
		}
		blocks++
		info, err := e.Info()
		require.NoError(t, err)
		synced := d.names[dir][e.Name()]
		require.Equal(t, inode(info), synced, "the folder was not synced since %s got its inode", e.Name())
		require.Equal(t, info.Size(), d.sizes[inode(info)], "%s was not synced to its end", e.Name())
	}
	return blocks
}
