// Package inside gives the packages under events/jetlog those parts of an open log that other callers don't see.
package inside

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnledger/turnledger/events/jetlog/internal/await"
	"github.com/turnledger/turnledger/events/jetlog/internal/layout"
	"github.com/turnledger/turnledger/events/jetlog/internal/wire"
)

// Log is the inside of an open log.
type Log struct {
	Wire   *wire.Conn
	Layout layout.Log
	// Deadline bounds a change whose outcome is unknown.
	Deadline time.Duration
	// Partition returns a partition, or jetlog.ErrNoPartition if the log has no partition of that number.
	Partition func(number int) (Partition, error)
	// LeaderHead asks a partition's leader for its last sequence. It fails with jetlog.ErrStream if the stream is not
	// the one that was opened.
	LeaderHead func(ctx context.Context, partition int) (uint64, error)
	// Measure refuses a message that is too large for the log (jetlog.ErrTooLarge).
	Measure func(m *nats.Msg) error
	// Publish publishes a message until the server has it, or until ctx ends, and returns its sequence.
	Publish func(ctx context.Context, partition int, m *nats.Msg) (uint64, error)
}

// Partition is one stream of an open log.
type Partition struct {
	Number int
	Stream string
	// Gate makes its events durable; nil if the servers sync every write.
	Gate *await.Gate
}
