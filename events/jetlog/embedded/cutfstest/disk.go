package cutfstest

import (
	"math"
	"sync"
	"syscall"
	"time"
)

// Options say how forgiving the modelled disk is. The zero value promises nothing but POSIX.
type Options struct {
	// FsyncFileMakesNewNameDurable lets fsync of a file also make durable the operations that gave the
	// file and the directories above it their names, as ext4, XFS and btrfs do in practice.
	FsyncFileMakesNewNameDurable bool
	// OrderedMetadata keeps directory operations as a prefix of the order in which they happened,
	// across all directories, as one journal does (ext4, XFS). Making one durable makes durable all
	// before it.
	OrderedMetadata bool
	// ReplacingRenameSyncsData makes durable the data of a file that is renamed over another one, before
	// the rename can be, as ext4 does by default (auto_da_alloc). XFS does not.
	ReplacingRenameSyncsData bool
	// OutliveCut lets the programs go on after a cut, on a disk that nobody will see again, so that they
	// can be stopped in order. Else all they do fails with EIO. Either way the cut leaves the same; but
	// what they say or learn after the cut, a real cut would not have let them: see [FS.Off].
	OutliveCut bool
}

const rootIno = 1

// sweepEvery bounds how many dead nodes pile up: one sweep per that many changes.
const sweepEvery = 4096

// disk is the model: what processes see now, what is durable, and the changes in between. All
// methods lock; after freeze they answer EIO and change nothing, unless the disk outlives the cut.
type disk struct {
	opts Options

	mu      sync.Mutex
	root    *node
	nodes   map[uint64]*node // by inode number: everything that a process or a survivor may still reach
	nextIno uint64           // never reused, so a replaced file is told by its number
	pending []*dirOp         // not durable yet, in the order they happened
	last    map[slot]*dirOp  // the latest pending operation on a name

	changes  int64 // changes and syncs done so far
	freezeAt int64 // freeze when changes gets here
	renamed  func(from, to string)
	frozen   chan struct{}
	aside    *disk // what the cut met, where the disk outlives it
}

// node is one inode: a file or a directory, never both.
type node struct {
	ino     uint64
	mode    uint32 // type and permissions, as in stat(2)
	mtime   time.Time
	lookups uint64  // references the kernel holds
	parent  *node   // as processes see it; nil once removed
	naming  *dirOp  // the pending operation that gave the present name; nil if the name is durable
	file    content // for files
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

// now is the clock of modification times. It is as coarse as a kernel's that ticks 100 times a second,
// so two changes may well have one time.
func now() time.Time { return time.Now().Truncate(10 * time.Millisecond) }

func (n *node) isDir() bool { return n.mode&syscall.S_IFMT == syscall.S_IFDIR }

func (n *node) attr() attr {
	return attr{ino: n.ino, mode: n.mode, size: uint64(len(n.file.now)), mtime: n.mtime}
}

// observe runs f, which must not change what a cut could show, on node ino.
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

// freeze fixes what later draws start from. Idempotent.
func (d *disk) freeze() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut()
}

// freezeAfter freezes the disk right after n more changes, the last of which still answers.
func (d *disk) freezeAfter(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.freezeAt, d.renamed = d.changes+n, ignoreRename
}

func ignoreRename(string, string) {}

// freezeAtRename freezes the disk more changes after the n-th rename that match says yes to.
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

func (d *disk) count() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changes
}

// known notes that the kernel was told of n and may name it by number until forget.
func (n *node) known() attr {
	n.lookups++
	return n.attr()
}

// forget takes back count of the kernel's references.
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
