// Package replay reads the log for analysts: every event as a CloudEvent in JSON form (docs/contract.md#reading, GET
// /events), filtered, merged over partitions, resumable and live.
//
// It never prints what a redaction covers, wherever in the log the redaction stands: before it prints the first byte it
// has read up to the log's end which turns and sessions are gone, and it keeps reading that while it prints. It never
// prints the body of an event that states no fact. It writes nothing to the log. Its memory does not grow with the
// log's length: it holds only the events that it is about to print.
package replay
