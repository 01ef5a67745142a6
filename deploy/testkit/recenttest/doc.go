// Package recenttest tests that every backend of the recent-turns view keeps one contract. Run is the suite. A
// reference folds the same log in another way.
//
// The log of a test lies in the past: whatever expires in it expired long ago, since a Redis expires keys by its own
// clock.
package recenttest
