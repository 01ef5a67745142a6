// Package rebuild fills a new generation of a projection beside the served one and swaps the two at catch-up
// (docs/design.md#rebuild-and-verify), and compares a view with a second fold of the log. Nothing but the projection is
// written: side effects have no part in it.
//
// An event that can't be applied ends a rebuild, with its position and reason, where
// a live runner parks it, unless an operator has dropped it of the served generation:
// then the new one has the same letter, with who and why. Whatever ends a rebuild before the swap leaves the served
// generation as it was.
package rebuild
