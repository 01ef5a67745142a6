package memory

// Held counts the sessions that take memory.
func (v *View) Held() (n int) {
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
