// Package conversation is the pure core: Fold says what an event changes in a
// session, decide says what a command asks of the log. No clock, no I/O.
//
// The fold is the judge: of facts that contradict each other the first
// in log order stands, whatever process published them; the rest are anomalies and change
// nothing. It applies facts and never fails.
package conversation
