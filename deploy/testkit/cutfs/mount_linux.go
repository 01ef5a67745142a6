package cutfs

import (
	"errors"
	"fmt"
	"io"
	"log"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// maxWrite is the largest write that stays one change. The kernel splits longer writes.
const maxWrite = 1 << 20

// FS is a mounted disk. Its methods are safe for concurrent use.
type FS struct {
	dir      string
	disk     *disk
	server   *fuse.Server
	watchdog *watchdog
}

// Mount mounts an empty disk on the existing directory dir. It needs root and /dev/fuse. The caller must call Unmount,
// which works even if files are still open.
func Mount(dir string, opts Options) (*FS, error) { return mount(dir, newDisk(opts)) }

// Mount mounts a fresh copy of the image on the existing directory dir, with the options of the disk that was cut. Each
// mount starts from the same image.
func (img *Image) Mount(dir string) (*FS, error) {
	return mount(dir, img.disk.survive(newDrawer(0)))
}

func mount(dir string, d *disk) (*FS, error) {
	dog, err := watch(dir)
	if err != nil {
		return nil, fmt.Errorf("cutfs: mount %s: %w", dir, err)
	}
	server, err := fuse.NewServer(newRaw(d), dir, &fuse.MountOptions{
		FsName:             "cutfs",
		Name:               "cutfs",
		MaxWrite:           maxWrite,
		DirectMountStrict:  true, // no fusermount: fail instead of depending on a helper
		DisableXAttrs:      true,
		DisableReadDirPlus: true,
		Logger:             log.New(io.Discard, "", 0), // it logs each request that an abort has overtaken
		PanicHandler:       func(v any) fuse.Status { panic(v) },
	})
	if err != nil {
		dog.stop()
		return nil, fmt.Errorf("cutfs: mount %s (needs root and /dev/fuse): %w", dir, err)
	}
	m := &FS{dir: dir, disk: d, server: server, watchdog: dog}
	go server.Serve() // ends with the mount; Unmount waits for it
	if err := server.WaitMount(); err != nil {
		return nil, errors.Join(fmt.Errorf("cutfs: mount %s: %w", dir, err), m.Unmount())
	}
	return m, nil
}

// CutAfter cuts the power right after n (at least 1) more changes, at whatever point the program is then: writes,
// truncations, directory operations and syncs. The last change still succeeds. A later call replaces n.
func (m *FS) CutAfter(n int64) { m.disk.freezeAfter(n) }

// CutAtRename cuts the power after the n-th rename from now that matches, and more further changes. match gets the last
// elements of the paths. An earlier CutAfter stays: the first of both moments counts.
func (m *FS) CutAtRename(match func(from, to string) bool, n int, more int64) {
	m.disk.freezeAtRename(match, n, more)
}

// Off is closed when the power is cut, before any operation after the cut returns. So a promise of the program counts
// only if Off is still open after the promise.
func (m *FS) Off() <-chan struct{} { return m.disk.frozen }

// Cut cuts the power, if it is still on, and draws from seed which changes survive. From then on every operation on the
// mount fails with EIO and changes nothing, unless [Options] say otherwise. One cut and one seed always give the same
// image; several seeds may be drawn from one cut.
func (m *FS) Cut(seed int64) *Image {
	m.disk.freeze()
	return &Image{m.disk.survive(newDrawer(seed))}
}

// Synced returns what is sure to survive a cut at this moment, and leaves the power on.
func (m *FS) Synced() *Image {
	draw := newDrawer(0)
	draw.data, draw.names = 0, 0
	return &Image{m.disk.survive(draw)}
}

// Unmount removes the mount and waits until it is no longer served. Files that are still open return errors from then
// on, so the programs need not be stopped first. Call it once, in a cleanup, whether or not there was a cut; the images
// stay usable.
func (m *FS) Unmount() error {
	// FORCE ends the connection even if files are open, or if another mount namespace has a copy of the mount. DETACH
	// removes the path. Nothing is cached, so nothing is left to be written.
	err := unix.Unmount(m.dir, unix.MNT_FORCE|unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil {
		return fmt.Errorf("cutfs: unmount %s: %w", m.dir, err)
	}
	m.server.Wait()
	m.watchdog.stop()
	return nil
}
