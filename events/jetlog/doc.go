// Package jetlog keeps the log in NATS JetStream. At its core are appends that are acknowledged only when they are on
// disk, session reads, the shared barrier that makes reads as new as the last write, and the tail that projections
// follow (docs/design.md#writing to #projections). Its subpackages are overwrite (removes events), operate (streams,
// copies) and pubsub (Watermill).
//
// Only durable events are shown: a Log's reads and gated tails end at the durability gate's sequence, so that no view
// is ahead of the log after a power cut.
package jetlog
