// Package projections folds the log into views: the Projection that a view
// implements, and the Judge that gives it each event with the fold's verdict
// (docs/design.md#projections). Package runner feeds it in batches, once, in order, across restarts.
//
// The checkpoint stands in the view's own store and is written in one transaction
// with the rows. Redelivery is harmless: what is not after the checkpoint is dropped.
package projections
