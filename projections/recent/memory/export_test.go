package memory

// Sessions counts the sessions that take memory.
func (v *View) Sessions() (n int) {
	for k := range v.parts {
		if p := v.parts[k].Load(); p != nil {
			for i := range p.shards {
				p.shards[i].mu.RLock()
				n += len(p.shards[i].sessions)
				p.shards[i].mu.RUnlock()
			}
		}
	}
	return n
}
