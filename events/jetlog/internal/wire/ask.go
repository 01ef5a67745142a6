package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnledger/turnledger/events/pause"
)

// Server error codes (server/errors.json of 2.15).
const (
	// NoSuitablePeers: the cluster has too few servers for a stream.
	NoSuitablePeers jetstream.ErrorCode = 10005
	// ServerFull: the server has no room.
	ServerFull jetstream.ErrorCode = 10023
)

const (
	// notNowTime is how long a request is made again while the servers are not ready for it: as long as a cluster may
	// take to come back after all its servers were killed.
	notNowTime = 30 * time.Second
	// gathering is how long the servers of a cluster that has just started may take to know each other.
	gathering = 10 * time.Second
	// oneRequest is how long one request about a stream may take. If the servers change their leader meanwhile, the
	// request or its answer is lost; a second request then finds what the first one did, or does it.
	oneRequest = 5 * time.Second
)

// Patiently makes a request to servers that perhaps have just started. It makes the request again if it was lost, and
// while the servers are not ready for it (NotNow).
func Patiently[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	wait := pause.Growing(5*time.Millisecond, time.Second)
	for began := time.Now(); ; {
		once, cancel := context.WithTimeout(ctx, oneRequest)
		answer, err := request(once)
		cancel()
		notNow := NotNow(err) && time.Since(began) < notNowTime
		alone := APIError(err).ErrorCode == NoSuitablePeers && time.Since(began) < gathering
		if !notNow && !alone {
			return answer, err
		}
		if !pause.For(ctx, wait.NextBackOff()) {
			return answer, err
		}
	}
}

// NotNow reports whether the same request may succeed a moment later: nothing listens yet (or only a proxy, which hangs
// up), or nobody answers, or the cluster has no leader. TLS, too, says by a net.OpError whom it does not trust.
func NotNow(err error) bool {
	if network, is := errors.AsType[*net.OpError](err); is {
		return network.Op == "dial" || network.Op == "read"
	}
	for _, how := range []error{
		context.DeadlineExceeded, io.EOF,
		nats.ErrTimeout, nats.ErrNoResponders, nats.ErrNoServers, nats.ErrDisconnected,
	} {
		if errors.Is(err, how) {
			return true
		}
	}
	answer := APIError(err)
	return answer.Code == 503 && answer.ErrorCode != ServerFull
}

// APIError returns what the server answered instead of doing what it was asked; zero for any other error.
func APIError(err error) jetstream.APIError {
	if js, ok := errors.AsType[jetstream.JetStreamError](err); ok && js.APIError() != nil {
		return *js.APIError()
	}
	return jetstream.APIError{}
}
