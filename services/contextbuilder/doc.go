// Package contextbuilder is the read side: sessions as new as the last
// acknowledged write, whatever a projection's lag, and the prompt that a model is
// sent (docs/contract.md#reading). It never writes: it can't import a writer, and a test
// proves it.
//
// A read takes a barrier, the log's last position, and folds what the view has not
// seen on top of it: exact, without waiting. Where the view is down, does not hold
// the session, or not enough of it, the log alone answers. A failure is an error,
// never an empty history.
package contextbuilder
