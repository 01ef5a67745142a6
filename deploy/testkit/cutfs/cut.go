package cutfs

import (
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
)

// drawer draws the outcome of a cut. It first draws how likely a change is to survive, for data and for names
// separately, so that extremes such as "all the names and none of the data" come up often.
type drawer struct {
	rng         *rand.Rand
	data, names float64
}

func newDrawer(seed int64) *drawer {
	rng := rand.New(rand.NewPCG(uint64(seed), 0))
	odds := []float64{0, 0.1, 0.5, 0.9, 1}
	return &drawer{rng: rng, data: odds[rng.IntN(len(odds))], names: odds[rng.IntN(len(odds))]}
}

func (w *drawer) keepWrite() bool { return w.rng.Float64() < w.data }

func (w *drawer) keepName() bool { return w.rng.Float64() < w.names }

func (w *drawer) tears(e edit) bool { return len(e.data) > 1 && w.rng.IntN(2) == 0 }

// names is what each directory holds after the cut.
type names map[*node]map[string]*node

// survive builds the disk that is left if the power is cut now, all of it durable. Only a frozen disk gives the same
// answer twice.
func (d *disk) survive(draw *drawer) *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.aside != nil {
		d = d.aside
	}
	left := newDisk(d.opts)
	left.nextIno = d.nextIno
	left.adopt(left.root, d.root, d.surviveNames(draw), draw)
	return left
}

// surviveNames draws which pending operations survive, and applies them to the durable names.
func (d *disk) surviveNames(draw *drawer) names {
	left := names{}
	of := func(dir *node) map[string]*node {
		if left[dir] == nil {
			left[dir] = maps.Clone(dir.dir.durable)
		}
		return left[dir]
	}
	for _, op := range d.keptOps(draw) {
		for _, e := range op.edits {
			e.apply(of(e.dir))
		}
	}
	return left
}

func (d *disk) keptOps(draw *drawer) []*dirOp {
	var kept []*dirOp
	alive := map[*dirOp]bool{}
	for _, op := range d.pending {
		possible := !slices.ContainsFunc(op.after, func(p *dirOp) bool { return !p.done && !alive[p] })
		if draw.keepName() && possible {
			alive[op] = true
			kept = append(kept, op)
		}
	}
	return kept
}

// adopt fills directory to with the surviving content of directory from. It goes in the order of the names, so that a
// seed always draws the same.
func (d *disk) adopt(to, from *node, left names, draw *drawer) {
	held, changed := left[from]
	if !changed {
		held = from.dir.durable
	}
	for _, name := range slices.Sorted(maps.Keys(held)) {
		old := held[name]
		n := newNode(old.ino, old.mode)
		n.mtime, n.parent = old.mtime, to
		to.dir.now[name], to.dir.durable[name] = n, n
		d.nodes[n.ino] = n
		if n.isDir() {
			d.adopt(n, old, left, draw)
			continue
		}
		n.file.now = old.file.survive(draw)
		n.file.durable = slices.Clone(n.file.now)
	}
}

const sector = 512

type content struct {
	now     []byte // as processes read it
	durable []byte // sure to survive
	pending []edit // the edits that lead from durable to now
}

// edit is a write, or a truncation to off. A write of no bytes only grows the file to off.
type edit struct {
	off      int
	data     []byte
	truncate bool
}

// apply returns image with the edit done. It may reuse the memory of image.
func (e edit) apply(image []byte) []byte {
	end := e.off + len(e.data)
	if grow := end - len(image); grow > 0 {
		image = append(image, make([]byte, grow)...)
	}
	if e.truncate {
		return image[:end]
	}
	copy(image[e.off:], e.data)
	return image
}

func (c *content) do(e edit) {
	c.now = e.apply(c.now)
	c.pending = append(c.pending, e)
}

// sync takes time for the writes since the last sync, not for the size of the file.
func (c *content) sync() {
	for _, e := range c.pending {
		c.durable = e.apply(c.durable)
	}
	c.pending = nil
}

// survive draws which edits of the file survive a cut, and returns the file's bytes after it.
func (c *content) survive(draw *drawer) []byte {
	image := slices.Clone(c.durable)
	var kept []edit
	for _, e := range c.pending {
		if draw.keepWrite() {
			kept = append(kept, e)
		}
	}
	if n := len(kept); n > 0 && draw.tears(kept[n-1]) {
		kept = append(kept[:n-1], kept[n-1].tear(draw.rng)...)
	}
	for _, e := range kept {
		image = e.apply(image)
	}
	return image
}

// tear returns the part of the write that is left after a cut in the middle of it.
func (e edit) tear(rng *rand.Rand) []edit {
	end := e.off + len(e.data)
	switch rng.IntN(3) {
	case 0: // cut at any byte
		return []edit{{off: e.off, data: e.data[:1+rng.IntN(len(e.data)-1)]}}
	case 1: // cut at a sector boundary of the file
		cut := (e.off + 1 + rng.IntN(len(e.data)-1)) / sector * sector
		return []edit{{off: e.off, data: e.data[:max(cut-e.off, 0)]}}
	default: // the size has grown, but some sectors are missing
		parts := []edit{{off: end}}
		for from := e.off; from < end; {
			to := min(from/sector*sector+sector, end)
			if rng.IntN(2) == 0 {
				parts = append(parts, edit{off: from, data: e.data[from-e.off : to-e.off]})
			}
			from = to
		}
		return parts
	}
}

// read copies from off on, as pread(2).
func (d *disk) read(ino uint64, off int64, buf []byte) (n int, errno syscall.Errno) {
	errno = d.observe(ino, func(f *node) syscall.Errno {
		if off < int64(len(f.file.now)) {
			n = copy(buf, f.file.now[off:])
		}
		return 0
	})
	return n, errno
}

// write writes data at off, or at the end for an append. It keeps data. With sync, the write and all earlier writes to
// the file are durable on return.
func (d *disk) write(ino uint64, off int64, data []byte, atEnd, sync bool) syscall.Errno {
	return d.change(ino, func(f *node) syscall.Errno {
		e := edit{off: int(off), data: data}
		if atEnd {
			e.off = len(f.file.now)
		}
		f.file.do(e)
		f.mtime = now()
		if sync {
			d.syncNode(f)
		}
		return 0
	})
}

// truncate sets the size, growing with zeros. To the present size it is no change.
func (d *disk) truncate(ino, size uint64) syscall.Errno {
	return d.change(ino, func(f *node) syscall.Errno {
		if f.isDir() {
			return syscall.EISDIR
		}
		if int(size) != len(f.file.now) {
			f.file.do(edit{off: int(size), truncate: true})
		}
		f.mtime = now()
		return 0
	})
}

// sync is fsync of a file or of a directory.
func (d *disk) sync(ino uint64) syscall.Errno {
	return d.change(ino, func(n *node) syscall.Errno {
		d.syncNode(n)
		return 0
	})
}

func (d *disk) syncNode(n *node) {
	n.file.sync()
	var ops []*dirOp
	if n.isDir() {
		ops = d.pendingIn(n)
	}
	if d.opts.FsyncFileMakesNewNameDurable {
		ops = append(ops, n.namings()...)
	}
	d.persist(ops)
}

// Image is the content of a disk after one cut. No process writes to it. Safe for concurrent use.
type Image struct{ disk *disk }

// ReadFile returns a copy of a surviving file's bytes. name is separated by slashes, and begins at the root of the disk
// without a slash. ReadFile fails with [fs.ErrNotExist] or [fs.ErrInvalid], as a [fs.PathError].
func (img *Image) ReadFile(name string) ([]byte, error) {
	n := img.disk.root
	for part := range strings.SplitSeq(name, "/") {
		if n = n.dir.now[part]; n == nil {
			return nil, &fs.PathError{Op: "read", Path: name, Err: fs.ErrNotExist}
		}
	}
	if n.isDir() {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fs.ErrInvalid}
	}
	return slices.Clone(n.file.now), nil
}

// Paths returns the surviving paths, sorted; directories end in a slash.
func (img *Image) Paths() []string {
	paths := appendPaths(nil, "", img.disk.root)
	slices.Sort(paths)
	return paths
}

func appendPaths(paths []string, under string, dir *node) []string {
	for name, n := range dir.dir.now {
		path := under + name
		if n.isDir() {
			path += "/"
			paths = appendPaths(paths, path, n)
		}
		paths = append(paths, path)
	}
	return paths
}
