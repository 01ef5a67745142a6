package await

// Wanted is the highest sequence that anybody has waited for.
func (g *Gate) Wanted() uint64 { return g.wanted.Load() }
