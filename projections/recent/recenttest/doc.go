// Package recenttest holds every backend of the recent-turns view to one contract:
// Run is the suite, and a reference folds the same log another way.
//
// A log of a test stands in the past: its times are set so that what has expired has
// done so long ago, since a Redis expires keys by its own clock.
package recenttest
