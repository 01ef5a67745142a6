package wire_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events/jetlog/internal/wire"
)

// A request is made again while a starting cluster lacks servers, where its answer is lost, and in whatever form the
// servers say that they can't answer now; any other answer counts.
//
//conformance:l3
func TestARequestIsMadeAgainWhileServersStart(t *testing.T) {
	alone := &jetstream.APIError{Code: 400, ErrorCode: wire.NoSuitablePeers}
	other := &jetstream.APIError{Code: 400, ErrorCode: 10074}
	full := &jetstream.APIError{Code: 503, ErrorCode: wire.ServerFull}
	leaderless := &jetstream.APIError{Code: 503, ErrorCode: 10008}
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	paused := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	distrusted := &net.OpError{Op: "remote error", Err: tls.AlertError(48)}
	lost := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	says := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
	type answers []func(context.Context) error
	for name, c := range map[string]struct {
		answers answers
		asked   int
		want    error
		within  time.Duration
	}{
		"done":                 {answers{says(nil)}, 1, nil, 0},
		"another refusal":      {answers{says(other)}, 1, other, 0},
		"servers are missing":  {answers{says(alone), says(alone), says(nil)}, 3, nil, time.Second},
		"the answer is lost":   {answers{lost, says(nil)}, 2, nil, 6 * time.Second},
		"they stay away":       {answers{says(alone)}, 0, alone, 12 * time.Second},
		"no answer ever comes": {answers{lost}, 0, context.DeadlineExceeded, 31 * time.Second},
		"no room":              {answers{says(full)}, 1, full, 0},
		"no leader":            {answers{says(leaderless), says(nil)}, 2, nil, time.Second},
		"no leader ever":       {answers{says(leaderless)}, 0, leaderless, 32 * time.Second},
		"nothing listens":      {answers{says(refused), says(nats.ErrNoServers), says(nil)}, 3, nil, time.Second},
		"nobody answers":       {answers{says(nats.ErrNoResponders), says(nats.ErrTimeout), says(nil)}, 3, nil, time.Second},
		"a proxy listens":      {answers{says(io.EOF), says(paused), says(nil)}, 3, nil, time.Second},
		"no trust":             {answers{says(distrusted)}, 1, distrusted, 0},
		"no credentials":       {answers{says(nats.ErrAuthorization)}, 1, nats.ErrAuthorization, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, asked := time.Now(), 0
				must.Fail(wire.Patiently(t.Context(), func(ctx context.Context) (jetstream.Stream, error) {
					asked++
					return nil, c.answers[min(asked, len(c.answers))-1](ctx)
				}))(t, c.want)
				require.LessOrEqual(t, time.Since(began), c.within)
				if c.asked > 0 {
					require.Equal(t, c.asked, asked)
				} else {
					require.Greater(t, time.Since(began), c.within-2*time.Second)
				}
			})
		})
	}
}

// Nobody waits for servers who no longer wants the answer.
func TestARequestEndsWithItsContext(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	_, err := wire.Patiently(ctx, func(context.Context) (jetstream.Stream, error) {
		stop(errors.New("enough"))
		return nil, &jetstream.APIError{ErrorCode: wire.NoSuitablePeers}
	})
	require.Equal(t, wire.NoSuitablePeers, wire.APIError(err).ErrorCode)
}
