// Package session is the pure core, without clock or I/O: Fold says what an event changes in the State of a session.
//
// The fold is the judge. If facts contradict each other, the first in log order counts, whatever process published it;
// the others are anomalies and change nothing. The fold never fails.
package session
