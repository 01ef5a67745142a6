package wire

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events/jetlog/internal/await"
)

// NoSuitablePeers is the server's error code of a stream for which a cluster has too few servers.
const NoSuitablePeers jetstream.ErrorCode = 10005

const (
	// gathering is how long the servers of a cluster that has just started may take to know each other.
	gathering = 10 * time.Second
	// oneRequest is how long one request about a stream may take. If the servers change their leader meanwhile, the
	// request or its answer is lost; a second request then finds what the first one did, or does it.
	oneRequest = 5 * time.Second
)

// AskStream makes a request about a stream. It repeats the request if it was lost, or while a starting cluster lacks
// servers.
func AskStream(
	ctx context.Context, request func(context.Context) (jetstream.Stream, error),
) (jetstream.Stream, error) {
	var between await.Patience
	for began := time.Now(); ; {
		once, cancel := context.WithTimeout(ctx, oneRequest)
		stream, err := request(once)
		cancel()
		lost := errors.Is(err, context.DeadlineExceeded) && time.Since(began) < 5*oneRequest
		alone := APIError(err).ErrorCode == NoSuitablePeers && time.Since(began) < gathering
		if !lost && !alone {
			return stream, err
		}
		between.Wait(ctx)
		if ctx.Err() != nil {
			return nil, err
		}
	}
}

// APIError returns what the server answered instead of doing what it was asked; zero for any other error.
func APIError(err error) jetstream.APIError {
	if js, ok := errors.AsType[jetstream.JetStreamError](err); ok && js.APIError() != nil {
		return *js.APIError()
	}
	return jetstream.APIError{}
}
