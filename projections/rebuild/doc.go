// Package rebuild fills a new generation of a projection beside the served one, and swaps the two when the new one has
// caught up (docs/design.md#rebuild-and-verify). It also compares a view with a second fold of the log. It writes only
// to the projection, and runs no side effects.
//
// When an event can't be applied, a live runner parks it, but a rebuild ends with the event's position and the reason.
// There is one exception: if an operator has dropped the event's letter in the served generation, the new generation
// gets the same letter. If a rebuild ends before the swap, the served generation is unchanged.
package rebuild
