package cutfs

import (
	"maps"
	"math/rand/v2"
	"slices"
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
