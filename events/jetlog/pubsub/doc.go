// Package pubsub carries a log's events through Watermill: a publisher for pipelines, a subscriber for third-party
// projectors and side effects, and a subscriber of batches for the projections of this repository.
package pubsub
