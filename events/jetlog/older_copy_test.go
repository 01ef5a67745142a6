package jetlog_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/jetlog/internal/logtest"
)

// TestAStreamPutBackThatHasGrownSinceIsNoticed puts the disk of a server back as it was some events ago, and lets
// the stream grow longer than it had been before those hear of it who had followed it: a tail, which would go on
// behind what it never saw, and one who only asks for the head, and would take a view of the former events for one
// of these.
func TestAStreamPutBackThatHasGrownSinceIsNoticed(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address, dir, copied := l.Addr().String(), filepath.Join(t.TempDir(), "log"), filepath.Join(t.TempDir(), "copy")
	require.NoError(t, l.Close())
	serve := func(do func(s *embedded.Server)) {
		s, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, Sync: embedded.Always, Listen: address})
		require.NoError(t, err)
		defer s.Stop()
		do(s)
	}
	write := func(s *embedded.Server, what string, n int) {
		nc, err := s.Connect()
		require.NoError(t, err)
		defer nc.Close()
		log, err := jetlog.Open(t.Context(), nc, jetlog.Config{Outside: true})
		require.NoError(t, err)
		for i := range n {
			logtest.Add(t, log, "s", fmt.Sprint(what, i), "x")
		}
	}
	serve(func(s *embedded.Server) { write(s, "kept", 3) })
	require.NoError(t, os.CopyFS(copied, os.DirFS(dir)))

	var follows, asks, idle *jetlog.Log
	var tails []*jetlog.Tail
	serve(func(s *embedded.Server) {
		write(s, "lost", 3)
		follows, asks, idle = outside(t, address), outside(t, address), outside(t, address)
		tails = []*jetlog.Tail{openTail(t, follows, 0, jetlog.TailOptions{}), openTail(t, outside(t, address), 0,
			jetlog.TailOptions{HeadersOnly: true})}
		for _, tail := range tails {
			followed(t, tail, 6)
		}
		_, err := asks.Head(t.Context(), 0)
		require.NoError(t, err)
	})
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.CopyFS(dir, os.DirFS(copied)))
	known := address
	address = "" // nobody reaches it meanwhile
	serve(func(s *embedded.Server) { write(s, "new", 5) })
	address = known
	serve(func(*embedded.Server) {
		for _, tail := range tails {
			_, err := tail.Next(deadline(t, 20*time.Second))
			require.ErrorIs(t, err, jetlog.ErrStream)
		}
		for name, log := range map[string]*jetlog.Log{"the tail's": follows, "asked before": asks,
			"never asked": idle} {
			require.Eventually(t, func() bool {
				_, err := log.Head(t.Context(), 0) // which looks once a second
				return errors.Is(err, jetlog.ErrStream)
			}, 20*time.Second, 10*time.Millisecond, name)
		}
	})
}

// outside opens a log that stays while its server comes and goes.
func outside(t *testing.T, address string) *jetlog.Log {
	t.Helper()
	nc, err := nats.Connect(address, nats.MaxReconnects(-1), nats.ReconnectWait(5*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	log, err := jetlog.Open(t.Context(), nc, jetlog.Config{Outside: true})
	require.NoError(t, err)
	return log
}
