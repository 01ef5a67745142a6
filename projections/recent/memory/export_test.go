package memory

import (
	"time"

	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/recent"
)

// NewPacked makes a view that leaves so many bytes of sessions unpacked.
func NewPacked(limits recent.Limits, rules session.Rules, now func() time.Time, open int64) *View {
	return packing(limits, rules, now, open)
}

// Open returns the sessions that are not packed, and how many of their bytes the view counts.
func (v *View) Open() (ids []string, counted int64) {
	g := v.served.Load()
	for k := range g.parts {
		if p := g.parts[k].Load(); p != nil {
			for i := range p.shards {
				for id, held := range p.shards[i].sessions {
					if held.packed == nil {
						ids = append(ids, id)
					}
				}
			}
		}
	}
	return ids, g.opened.bytes.Load()
}

// Held counts the sessions that take memory.
func (v *View) SessionsHeld() (n int) {
	g := v.served.Load()
	for k := range g.parts {
		if p := g.parts[k].Load(); p != nil {
			for i := range p.shards {
				p.shards[i].mu.RLock()
				n += len(p.shards[i].sessions)
				p.shards[i].mu.RUnlock()
			}
		}
	}
	return n
}

// Snapshot is partition.snapshot of what is served.
func (v *View) Snapshot(k int, load func() *session.State) (uint64, *session.State) {
	p, err := v.served.Load().part(k)
	if err != nil {
		return 0, nil
	}
	return p.snapshot(load)
}
