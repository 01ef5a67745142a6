package cutfs

import (
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

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
func (img *Image) Mount(dir string) (*FS, error) { return mount(dir, img.disk.survive(newDrawer(0))) }

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

// The kernel may keep names: all changes go through it, so its names are never stale. It must not keep attributes or
// data: every stat, read and write comes here, and fails here after a cut.
const nameTimeout = time.Hour

// NOFLUSH: a close has nothing to flush, since the disk has every write already.
const openFlags = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NOFLUSH

// raw speaks FUSE for a disk; its node ids are the inode numbers.
type raw struct {
	fuse.RawFileSystem // ENOSYS for every method that is not below

	disk *disk

	mu       sync.Mutex
	listings map[uint64][]fuse.DirEntry // open directories, by handle
	handles  uint64
}

func newRaw(d *disk) *raw {
	return &raw{RawFileSystem: fuse.NewDefaultRawFileSystem(), disk: d, listings: map[uint64][]fuse.DirEntry{}}
}

func (r *raw) String() string { return "cutfs" }

func (r *raw) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	a, errno := r.disk.lookup(h.NodeId, name)
	fillEntry(out, a)
	return fuse.Status(errno)
}

func (r *raw) Forget(ino, count uint64) { r.disk.forget(ino, count) }

func (r *raw) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	return fuse.Status(r.disk.observe(in.NodeId, func(n *node) syscall.Errno {
		fillAttr(&out.Attr, n.attr())
		return 0
	}))
}

func (r *raw) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	if size, ok := in.GetSize(); ok {
		if errno := r.disk.truncate(in.NodeId, size); errno != 0 {
			return fuse.Status(errno)
		}
	}
	return fuse.Status(r.disk.observe(in.NodeId, func(n *node) syscall.Errno {
		if mode, ok := in.GetMode(); ok {
			n.mode = n.mode&syscall.S_IFMT | mode&^uint32(syscall.S_IFMT)
		}
		if mtime, ok := in.GetMTime(); ok {
			n.mtime = mtime
		}
		fillAttr(&out.Attr, n.attr())
		return 0
	}))
}

func (r *raw) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	a, errno := r.disk.create(in.NodeId, name, syscall.S_IFREG|in.Mode&0o7777)
	fillEntry(&out.EntryOut, a)
	out.OpenFlags = openFlags
	return fuse.Status(errno)
}

func (r *raw) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	a, errno := r.disk.create(in.NodeId, name, syscall.S_IFDIR|in.Mode&0o7777)
	fillEntry(out, a)
	return fuse.Status(errno)
}

func (r *raw) Symlink(_ <-chan struct{}, h *fuse.InHeader, to, name string, out *fuse.EntryOut) fuse.Status {
	a, errno := r.disk.symlink(h.NodeId, name, to)
	fillEntry(out, a)
	return fuse.Status(errno)
}

func (r *raw) Readlink(_ <-chan struct{}, h *fuse.InHeader) (to []byte, status fuse.Status) {
	errno := r.disk.observe(h.NodeId, func(n *node) syscall.Errno {
		to = n.file.now
		return 0
	})
	return to, fuse.Status(errno)
}

func (r *raw) Unlink(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return fuse.Status(r.disk.remove(h.NodeId, name, false))
}

func (r *raw) Rmdir(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return fuse.Status(r.disk.remove(h.NodeId, name, true))
}

func (r *raw) Rename(_ <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	const noReplace = 1
	if in.Flags&^noReplace != 0 {
		return fuse.EINVAL
	}
	return fuse.Status(r.disk.rename(in.NodeId, oldName, in.Newdir, newName, in.Flags&noReplace != 0))
}

func (r *raw) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	out.OpenFlags = openFlags
	if in.Flags&syscall.O_TRUNC != 0 {
		return fuse.Status(r.disk.truncate(in.NodeId, 0))
	}
	return fuse.Status(r.disk.observe(in.NodeId, func(*node) syscall.Errno { return 0 }))
}

func (r *raw) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	n, errno := r.disk.read(in.NodeId, int64(in.Offset), buf)
	return fuse.ReadResultData(buf[:n]), fuse.Status(errno)
}

// Writev copies the data, since the library reuses its buffers.
func (r *raw) Writev(_ <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	atEnd := in.Flags&syscall.O_APPEND != 0
	sync := in.Flags&(syscall.O_SYNC|syscall.O_DSYNC) != 0
	if errno := r.disk.write(in.NodeId, int64(in.Offset), slices.Concat(data...), atEnd, sync); errno != 0 {
		return 0, fuse.Status(errno)
	}
	return in.Size, fuse.OK
}

func (r *raw) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return fuse.Status(r.disk.sync(in.NodeId))
}

func (r *raw) FsyncDir(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return fuse.Status(r.disk.sync(in.NodeId))
}

func (r *raw) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	list, errno := r.list(in.NodeId)
	if errno != 0 {
		return fuse.Status(errno)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handles++
	out.Fh = r.handles
	r.listings[out.Fh] = list
	return fuse.OK
}

// ReadDir pages through the names as they were when the reading began. A reader that rewinds gets the present names.
func (r *raw) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	fresh, errno := r.list(in.NodeId)
	if errno != 0 {
		return fuse.Status(errno)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if in.Offset == 0 {
		r.listings[in.Fh] = fresh
	}
	list := r.listings[in.Fh]
	for _, e := range list[min(in.Offset, uint64(len(list))):] {
		if !out.AddDirEntry(e) {
			break
		}
	}
	return fuse.OK
}

func (r *raw) ReleaseDir(in *fuse.ReleaseIn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.listings, in.Fh)
}

func (r *raw) list(ino uint64) (list []fuse.DirEntry, errno syscall.Errno) {
	errno = r.disk.observe(ino, func(n *node) syscall.Errno {
		for _, name := range slices.Sorted(maps.Keys(n.dir.now)) {
			child := n.dir.now[name]
			list = append(list, fuse.DirEntry{Name: name, Ino: child.ino, Mode: child.mode})
		}
		return 0
	})
	return list, errno
}

// StatFs shows a large, half-empty disk, since the server derives its limits from it.
func (r *raw) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	const blocks, blockSize = 1 << 24, 4096
	*out = fuse.StatfsOut{Blocks: blocks, Bfree: blocks / 2, Bavail: blocks / 2, Files: blocks, Ffree: blocks / 2,
		Bsize: blockSize, Frsize: blockSize, NameLen: 255}
	return fuse.Status(r.disk.observe(rootIno, func(*node) syscall.Errno { return 0 }))
}

func fillEntry(out *fuse.EntryOut, a attr) {
	out.NodeId, out.Generation = a.ino, 1
	out.SetEntryTimeout(nameTimeout)
	fillAttr(&out.Attr, a)
}

func fillAttr(out *fuse.Attr, a attr) {
	out.Ino, out.Mode, out.Nlink = a.ino, a.mode, 1
	out.Size, out.Blocks, out.Blksize = a.size, (a.size+sector-1)/sector, 4096
	out.SetTimes(&a.mtime, &a.mtime, &a.mtime)
}

// watchdogScript unmounts $2 once process $1 is gone, or is a zombie that can't end.
const watchdogScript = `while grep -qs '^State:.[^ZX]' "/proc/$1/status"; do sleep 1; done; umount -f -l "$2"`

// watchdog ends a mount whose process dies without Unmount, by a panic, a test timeout or a kill. It must be a process
// of its own: if a process dies while one of its threads waits for its own FUSE server, it can't be killed until
// somebody aborts the connection.
type watchdog struct{ cmd *exec.Cmd }

func watch(dir string) (*watchdog, error) {
	// No context: it must outlive them all.
	cmd := exec.Command("/bin/sh", "-c", watchdogScript, "cutfs-watchdog", strconv.Itoa(os.Getpid()), dir)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("watchdog: %w", err)
	}
	return &watchdog{cmd}, nil
}

func (w *watchdog) stop() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
}
