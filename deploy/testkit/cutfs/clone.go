package cutfs

import (
	"slices"
)

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
