// Package projections folds the log into views. It declares the Projection that a view implements, and the Judge that
// adds the fold's verdict to each event (docs/design.md#projections). Package runner feeds a projection in batches,
// each event once and in order, across restarts.
//
// The checkpoint is stored in the view's own store, in one transaction with the rows. Redelivery is harmless: events up
// to the checkpoint are dropped.
package projections
