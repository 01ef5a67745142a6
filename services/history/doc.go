// Package history is the command side and the only writer of events: it decides on the folded state of a session,
// appends, and answers with the verdict of its own fold at the event's position, so that of two processes that race
// never both win (docs/design.md#writing). An answer is given only when the event it rests on is durable.
package history
