// Package index is the view that searches by meaning read: one object for each finalized turn of a linked session, with
// a vector of its question and one of its answer, in a store of vectors (docs/contract.md#index). Package weaviate
// keeps it in Weaviate.
//
// A store of vectors has no transactions and no conditional writes, and may lose its last minute with its host. So the
// checkpoints lie in the log's notes, and three things make up for what the store lacks:
//
//   - A claim goes back two minutes, or to the last position that the store itself still knows (a canary), whichever
//     is older. Objects are written again from there; writing one twice is harmless.
//   - Each object carries the epoch and the sequence of its writing. A runner that was taken over may still write,
//     late. Sweep finds such objects by these two numbers, and puts what the log says in their place.
//   - No search shows what an object holds. A hit is an id; the turn's state and text come from the tables or the
//     log.
//
// A generation is a collection of its own. The note of the served generation names it, and every read goes by that
// note.
package index
