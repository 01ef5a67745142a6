// Package index is the view that searches by meaning read: one object for each finalized turn of a linked session, with
// a vector of its question and one of its answer, in a store of vectors (docs/contract.md#index). Package weaviate
// keeps it in Weaviate.
//
// A store of vectors has no transactions and no conditional writes, and may lose its last minute with its host. So the
// checkpoints lie in the log's notes, objects are upserted and deleted by id, and one thing makes up for what the store
// lacks: a sweep pages through the ids and digests of all objects, compares them with a fold of the log, and writes
// what differs as the log has it, whoever wrote it last. It is also what verifies the index. A receipt says that the
// index has forgotten a text after a sweep that began behind the redaction, once no request of a former runner can
// arrive any more.
//
// No search shows what an object holds. A hit is an id; the turn's state and text come from the tables or the log.
//
// A generation is a collection of its own. The note of the served generation names it, and every read goes by that
// note.
package index
