package follower

// StillFor is how long a reader of its own waits for events before it looks at the ring again.
const StillFor = stillFor

// Used returns how much of the budget is used.
func (f *Follower) Used() int64 { return f.budget.used.Load() }

// Joined returns how many readers of events are in a ring, judges among them.
func (f *Follower) Joined() (n int) {
	for _, p := range f.parts {
		p.raw.mu.Lock()
		for h := range p.raw.holds {
			if h.at >= p.raw.base {
				n++
			}
		}
		p.raw.mu.Unlock()
	}
	return n
}
