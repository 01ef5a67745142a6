package cutfs

import "syscall"

// slot is one name in one directory.
type slot struct {
	dir  uint64
	name string
}

// dirOp is one directory operation that is not durable yet. Its edits happen together or not at all.
type dirOp struct {
	edits []nameEdit
	after []*dirOp // if this operation survives, these did too
	done  bool     // durable by now
}

// nameEdit points a name at a node, or removes the name.
type nameEdit struct {
	dir  *node
	name string
	to   *node
}

func (e nameEdit) slot() slot { return slot{e.dir.ino, e.name} }

func (e nameEdit) apply(names map[string]*node) {
	if e.to == nil {
		delete(names, e.name)
		return
	}
	names[e.name] = e.to
}

// record does an operation as processes see it, and keeps it as pending.
func (d *disk) record(edits []nameEdit, after []*dirOp) {
	op := &dirOp{edits: edits, after: after}
	for _, e := range edits {
		if prev := d.last[e.slot()]; prev != nil {
			op.after = append(op.after, prev)
		}
		d.last[e.slot()] = op
		if gone := e.dir.dir.now[e.name]; gone != nil {
			gone.parent, gone.naming = nil, nil
		}
		e.apply(e.dir.dir.now)
		e.dir.mtime = now()
	}
	for _, e := range edits {
		if e.to != nil {
			e.to.parent, e.to.naming = e.dir, op
		}
	}
	d.pending = append(d.pending, op)
}

// pendingIn returns the pending operations that changed a name in dir.
func (d *disk) pendingIn(dir *node) []*dirOp {
	var ops []*dirOp
	for _, op := range d.pending {
		for _, e := range op.edits {
			if e.dir == dir {
				ops = append(ops, op)
				break
			}
		}
	}
	return ops
}

// namings returns the pending operations that gave names to n and the directories above it.
func (n *node) namings() []*dirOp {
	var ops []*dirOp
	for ; n != nil; n = n.parent {
		if n.naming != nil {
			ops = append(ops, n.naming)
		}
	}
	return ops
}

// persist makes operations durable, with all operations that they depend on, in the order they happened.
func (d *disk) persist(ops []*dirOp) {
	if len(ops) == 0 {
		return
	}
	finish(ops)
	rest := d.pending[:0]
	for _, op := range d.pending {
		if op.done {
			d.settle(op)
		} else {
			rest = append(rest, op)
		}
	}
	clear(d.pending[len(rest):])
	d.pending = rest
}

// finish marks operations as done, and all operations that they depend on directly or indirectly.
func finish(ops []*dirOp) {
	for len(ops) > 0 {
		op := ops[len(ops)-1]
		ops = ops[:len(ops)-1]
		if !op.done {
			op.done = true
			ops = append(ops, op.after...)
			op.after = nil
		}
	}
}

// settle moves a durable operation out of the pending state.
func (d *disk) settle(op *dirOp) {
	op.after = nil
	for _, e := range op.edits {
		e.apply(e.dir.dir.durable)
		if d.last[e.slot()] == op {
			delete(d.last, e.slot())
		}
		if e.to != nil && e.to.naming == op {
			e.to.naming = nil
		}
	}
}

// lookup finds a name and returns its node to the kernel.
func (d *disk) lookup(parent uint64, name string) (a attr, errno syscall.Errno) {
	errno = d.observe(parent, func(p *node) syscall.Errno {
		n, ok := p.dir.now[name]
		if !ok {
			return syscall.ENOENT
		}
		a = n.known()
		return 0
	})
	return a, errno
}

// create makes an empty file or directory and returns it to the kernel. It returns EEXIST if the name is taken.
func (d *disk) create(parent uint64, name string, mode uint32) (attr, syscall.Errno) {
	return d.add(parent, name, mode, nil)
}

// symlink makes a symbolic link. Where the link's name survives a cut, what it leads to survives too.
func (d *disk) symlink(parent uint64, name, to string) (attr, syscall.Errno) {
	return d.add(parent, name, syscall.S_IFLNK|0o777, []byte(to))
}

// add makes a node whose content is durable.
func (d *disk) add(parent uint64, name string, mode uint32, content []byte) (a attr, errno syscall.Errno) {
	errno = d.change(parent, func(p *node) syscall.Errno {
		if _, taken := p.dir.now[name]; taken {
			return syscall.EEXIST
		}
		n := newNode(d.nextIno, mode)
		n.file.now, n.file.durable = content, content
		d.nextIno++
		d.nodes[n.ino] = n
		d.record([]nameEdit{{p, name, n}}, nil)
		a = n.known()
		return 0
	})
	return a, errno
}

// remove is unlink or, with dir, rmdir.
func (d *disk) remove(parent uint64, name string, dir bool) syscall.Errno {
	return d.change(parent, func(p *node) syscall.Errno {
		n, ok := p.dir.now[name]
		switch {
		case !ok:
			return syscall.ENOENT
		case dir && !n.isDir():
			return syscall.ENOTDIR
		case !dir && n.isDir():
			return syscall.EISDIR
		case len(n.dir.now) > 0:
			return syscall.ENOTEMPTY
		}
		d.record([]nameEdit{{p, name, nil}}, d.emptying(n))
		return 0
	})
}

// emptying returns the pending operations that changed names in a directory. The directory's removal survives a cut
// only if these operations survive it too. A file has no such operations.
func (d *disk) emptying(n *node) []*dirOp {
	if n == nil || !n.isDir() {
		return nil
	}
	return d.pendingIn(n)
}

// rename moves a name. It replaces the node at the new name, unless keep is set. The kernel makes sure that a directory
// does not move below itself.
func (d *disk) rename(from uint64, oldName string, to uint64, newName string, keep bool) syscall.Errno {
	return d.change(from, func(src *node) syscall.Errno {
		dst, n := d.nodes[to], src.dir.now[oldName]
		if dst == nil || n == nil {
			return syscall.ENOENT
		}
		old := dst.dir.now[newName]
		if errno := mayReplace(n, old, keep); errno != 0 || n == old {
			return errno
		}
		if old != nil && d.opts.ReplacingRenameSyncsData {
			n.file.sync()
		}
		after := d.emptying(old)
		if src != dst {
			after = append(after, dst.namings()...)
		}
		d.record([]nameEdit{{src, oldName, nil}, {dst, newName, n}}, after)
		d.renamed(oldName, newName)
		return 0
	})
}

func mayReplace(n, old *node, keep bool) syscall.Errno {
	switch {
	case old == nil:
		return 0
	case keep:
		return syscall.EEXIST
	case old.isDir() && !n.isDir():
		return syscall.EISDIR
	case !old.isDir() && n.isDir():
		return syscall.ENOTDIR
	case len(old.dir.now) > 0:
		return syscall.ENOTEMPTY
	}
	return 0
}
