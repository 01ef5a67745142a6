package audit

import "time"

// Narrow lets searches look at few turns at once, so that a small test reaches what a large table does.
func (a *Audit) Narrow(window, first, all, own int) {
	a.bounds.window, a.bounds.first, a.bounds.all, a.bounds.own = window, first, all, own
}

// WithoutTerms leaves out what searches need.
func (a *Audit) WithoutTerms(yes bool) { a.withoutTerms = yes }

// AskEach has the server asked in these intervals whether it answers while it makes the tables.
func (a *Audit) AskEach(d time.Duration) { a.askEvery = d }
