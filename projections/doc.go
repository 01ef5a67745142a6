// Package projections holds the contracts by which the log becomes views (docs/design.md#projections). A View keeps
// rows in a store and can be rebuilt. A Projection is any code that a runner feeds, an effect on the outside world too.
// A Task is work that two processes may do twice. The Judge adds the fold's verdict to each event before they see it.
//
// Package runner feeds them in batches, each event once and in order, across restarts. A view stores its checkpoint in
// its own store, in one transaction with the rows, and the runner begins after the checkpoint.
package projections
