package audit

// Narrow lets searches look at few turns at once, so that a small test reaches what a large table does.
func (a *Audit) Narrow(window, first, all, own int) {
	a.bounds.window, a.bounds.first, a.bounds.all, a.bounds.own = window, first, all, own
}

// WithoutTerms leaves out what searches need.
func (a *Audit) WithoutTerms(yes bool) { a.withoutTerms = yes }
