package cutfs

import (
	"math/rand/v2"
	"slices"
	"syscall"
)

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
