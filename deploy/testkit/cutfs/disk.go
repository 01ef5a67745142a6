package cutfs

import (
	"math"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Options say how forgiving the modelled disk is. The zero value promises nothing but POSIX.
type Options struct {
	// FsyncFileMakesNewNameDurable: fsync of a file also makes durable the operations that gave names to the file and
	// to the directories above it, as ext4, XFS and btrfs do in practice.
	FsyncFileMakesNewNameDurable bool
	// ReplacingRenameSyncsData: before a rename over another file can survive, the data of the renamed file is durable,
	// as with ext4 by default (auto_da_alloc). XFS does not do this.
	ReplacingRenameSyncsData bool
	// OutliveCut lets the programs go on after a cut, on a disk that nobody will see again, so that they can be stopped
	// in order. Otherwise all their operations fail with EIO. The image of the cut is the same either way. But after a
	// real cut the programs could not go on: what they report after it does not count (see [FS.Off]).
	OutliveCut bool
}

const rootIno = 1

// sweepEvery is the number of changes after which dead nodes are swept.
const sweepEvery = 4096

// disk is the model: the state that processes see now, the durable state, and the changes in between. All methods lock.
// After freeze they return EIO and change nothing, unless the disk outlives the cut.
type disk struct {
	opts Options

	mu      sync.Mutex
	root    *node
	nodes   map[uint64]*node // by inode number: all nodes that a process or a survivor may still reach
	nextIno uint64           // never reused, so that a replaced file has another number
	pending []*dirOp         // in the order they happened
	last    map[slot]*dirOp  // the latest pending operation on a name

	changes  int64 // changes and syncs done so far
	freezeAt int64 // freeze when changes reaches this number
	renamed  func(from, to string)
	frozen   chan struct{}
	aside    *disk // the state at the cut, if the disk outlives it
}

// node is one inode: a file, a directory or a symbolic link. A link is a file whose content is what it leads to.
type node struct {
	ino     uint64
	mode    uint32 // type and permissions, as in stat(2)
	mtime   time.Time
	lookups uint64  // references that the kernel holds
	parent  *node   // as processes see it; nil after a removal
	naming  *dirOp  // the pending operation that gave the present name; nil if the name is durable
	file    content // for files and links
	dir     entries // for directories
}

// entries are a directory's names: as processes see them, and as they are sure to survive.
type entries struct {
	now, durable map[string]*node
}

// attr holds what stat(2) returns for a node.
type attr struct {
	ino   uint64
	mode  uint32
	size  uint64
	mtime time.Time
}

// newDisk makes an empty disk whose root directory is durable.
func newDisk(opts Options) *disk {
	root := newNode(rootIno, syscall.S_IFDIR|0o755)
	return &disk{
		opts:     opts,
		root:     root,
		nodes:    map[uint64]*node{rootIno: root},
		nextIno:  rootIno + 1,
		last:     map[slot]*dirOp{},
		freezeAt: math.MaxInt64,
		renamed:  ignoreRename,
		frozen:   make(chan struct{}),
	}
}

func newNode(ino uint64, mode uint32) *node {
	n := &node{ino: ino, mode: mode, mtime: now()}
	if n.isDir() {
		n.dir = entries{now: map[string]*node{}, durable: map[string]*node{}}
	}
	return n
}

// now returns the time for modification times. It is as coarse as in a kernel that ticks 100 times a second, so two
// changes may well have the same time.
func now() time.Time { return time.Now().Truncate(10 * time.Millisecond) }

func (n *node) isDir() bool { return n.mode&syscall.S_IFMT == syscall.S_IFDIR }

func (n *node) attr() attr {
	return attr{ino: n.ino, mode: n.mode, size: uint64(len(n.file.now)), mtime: n.mtime}
}

// observe runs f on node ino. f must not change anything that a cut could show.
func (d *disk) observe(ino uint64, f func(*node) syscall.Errno) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isFrozen() && !d.opts.OutliveCut {
		return syscall.EIO
	}
	n, ok := d.nodes[ino]
	if !ok {
		return syscall.ENOENT
	}
	return f(n)
}

// change runs f like observe, and counts it as one change if it worked.
func (d *disk) change(ino uint64, f func(*node) syscall.Errno) syscall.Errno {
	return d.observe(ino, func(n *node) syscall.Errno {
		if errno := f(n); errno != 0 {
			return errno
		}
		d.changes++
		if d.changes%sweepEvery == 0 {
			d.sweep()
		}
		if d.changes >= d.freezeAt {
			d.cut()
		}
		return 0
	})
}

func (d *disk) isFrozen() bool {
	select {
	case <-d.frozen:
		return true
	default:
		return false
	}
}

// cut is freeze for callers that hold the lock.
func (d *disk) cut() {
	if d.isFrozen() {
		return
	}
	if d.opts.OutliveCut {
		d.aside = d.clone()
	}
	close(d.frozen)
}

// freeze fixes the state that later draws start from. Idempotent.
func (d *disk) freeze() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut()
}

// freezeAfter freezes the disk right after n more changes. The last one still succeeds.
func (d *disk) freezeAfter(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.freezeAt, d.renamed = d.changes+n, ignoreRename
}

func ignoreRename(string, string) {}

// freezeAtRename freezes the disk after the n-th rename that matches, and more further changes.
func (d *disk) freezeAtRename(match func(from, to string) bool, n int, more int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.renamed = func(from, to string) {
		if !match(from, to) {
			return
		}
		if n--; n == 0 {
			d.freezeAt = min(d.freezeAt, d.changes+1+more)
			d.renamed = ignoreRename
		}
	}
}

// known notes that the kernel learned of n, and may use its number until forget.
func (n *node) known() attr {
	n.lookups++
	return n.attr()
}

// forget removes count of the kernel's references.
func (d *disk) forget(ino, count uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n, ok := d.nodes[ino]; ok {
		n.lookups -= min(count, n.lookups)
	}
}

// sweep drops the nodes that neither a process nor any survivor can reach.
func (d *disk) sweep() {
	live := map[*node]bool{}
	mark(live, d.root)
	for _, op := range d.pending {
		for _, e := range op.edits {
			mark(live, e.dir)
			mark(live, e.to)
		}
	}
	for ino, n := range d.nodes {
		if !live[n] && n.lookups == 0 {
			delete(d.nodes, ino)
		}
	}
}

func mark(live map[*node]bool, n *node) {
	if n == nil || live[n] {
		return
	}
	live[n] = true
	for _, child := range n.dir.now {
		mark(live, child)
	}
	for _, child := range n.dir.durable {
		mark(live, child)
	}
}

// clone copies the state that a cut draws from. The clone shares nothing that a later change of d could reach.
func (d *disk) clone() *disk {
	c := newDisk(d.opts)
	c.nextIno = d.nextIno
	nodes := map[*node]*node{nil: nil}
	for _, n := range d.nodes {
		nodes[n] = n.clone()
	}
	for old, n := range nodes {
		if n == nil {
			continue
		}
		for name, child := range old.dir.durable {
			n.dir.durable[name] = nodes[child]
		}
	}
	c.root = nodes[d.root]
	c.pending = cloneOps(d.pending, nodes)
	return c
}

// clone copies a node without its names.
func (n *node) clone() *node {
	c := newNode(n.ino, n.mode)
	c.mtime = n.mtime
	c.file.durable = slices.Clone(n.file.durable)
	c.file.pending = slices.Clone(n.file.pending) // an edit never changes
	return c
}

func cloneOps(pending []*dirOp, nodes map[*node]*node) []*dirOp {
	ops := map[*dirOp]*dirOp{}
	var all []*dirOp
	for _, old := range pending {
		op := &dirOp{}
		for _, e := range old.edits {
			op.edits = append(op.edits, nameEdit{nodes[e.dir], e.name, nodes[e.to]})
		}
		for _, before := range old.after {
			if !before.done {
				op.after = append(op.after, ops[before])
			}
		}
		ops[old] = op
		all = append(all, op)
	}
	return all
}
