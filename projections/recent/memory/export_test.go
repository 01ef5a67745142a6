package memory

import "github.com/turnledger/turnledger/events/conversation"

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
func (v *View) Snapshot(k int, load func() *conversation.State) (uint64, *conversation.State) {
	p, err := v.served.Load().part(k)
	if err != nil {
		return 0, nil
	}
	return p.snapshot(load)
}
