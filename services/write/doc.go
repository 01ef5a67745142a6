// Package write is the command side and the only writer of events: it decides on the folded state of a session,
// appends the event, and answers with what its own fold says at the event's position. So when two processes race, only
// one wins (docs/design.md#writing). It answers only when the event that the answer rests on is durable.
package write
