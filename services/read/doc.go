// Package read is the read side: it returns sessions as new as the last acknowledged write, however far a projection
// lags (docs/contract.md#reading). It never writes: a test proves that it can't import a writer.
//
// A read takes a barrier, the log's last position, and folds the events that the view lacks on top of the view. The
// result is exact, and the read need not wait for the view. If the view is down, or lacks the session or some of its
// turns, the read comes from the log alone. A failure is an error, never an empty history.
package read
