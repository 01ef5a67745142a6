// Package jetlog keeps the log in NATS JetStream. Its core are appends that are acknowledged only when they are on
// disk, session reads, the shared barrier that makes reads as new as the last write, and the tail that projections
// follow (docs/design.md#writing to #projections). Beside it stand overwrite (taking events out), operate (streams,
// copies) and pubsub (Watermill).
//
// Nothing that is not durable is shown: a Log's reads and gated tails end at the durability gate's sequence, so that no
// view is ahead of the log after a power cut.
package jetlog
