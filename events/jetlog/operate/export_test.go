package operate

import (
	"context"

	"github.com/nats-io/nats.go"
)

// Send is send, with the time that a part of a copy may take.
func Send(ctx context.Context, nc *nats.Conn, to string, part []byte) error {
	return send(ctx, nc, to, part, chunkDeadline)
}
