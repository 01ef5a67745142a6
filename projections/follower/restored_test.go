package follower_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/natstest"
	"github.com/turnledger/turnledger/projections/follower"
)

func link(session string) *events.SessionLinked {
	return &events.SessionLinked{SessionID: session, IdentityID: "ada"}
}

// TestARestoredStreamEndsTheFollower puts the disk of a server back as it was some events ago, and has the stream grow
// longer than it had been before the follower hears of it: whoever reads with it is told, and is given nothing of the
// other stream.
func TestARestoredStreamEndsTheFollower(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address, dir, copied := l.Addr().String(), filepath.Join(t.TempDir(), "log"), filepath.Join(t.TempDir(), "copy")
	require.NoError(t, l.Close())
	serve := func(listen string, do func(log *jetlog.Log)) {
		s, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, Sync: embedded.Always, Listen: listen})
		require.NoError(t, err)
		defer s.Stop()
		nc, err := s.Connect()
		require.NoError(t, err)
		defer nc.Close()
		log, err := jetlog.Open(t.Context(), nc, jetlog.Config{Outside: true})
		require.NoError(t, err)
		do(log)
	}
	serve("", func(log *jetlog.Log) { natstest.Append(t, log, link("kept")) })
	require.NoError(t, os.CopyFS(copied, os.DirFS(dir)))
	nc, err := nats.Connect(address, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.ReconnectWait(5*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	var in *follower.Subscription[jetlog.Message]
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	serve(address, func(log *jetlog.Log) {
		require.Eventually(t, nc.IsConnected, 20*time.Second, time.Millisecond)
		followed, err := jetlog.Open(t.Context(), nc, jetlog.Config{Outside: true})
		require.NoError(t, err)
		f := follower.New(followed, follower.Config{Rules: rules})
		go func() { ended <- f.Run(ctx) }()
		in = f.Events(0, 0, jetlog.TailOptions{})
		natstest.Append(t, log, link("lost 1"), link("lost 2"))
		for n := 0; n < 3; {
			batch, err := in.Next(t.Context())
			require.NoError(t, err)
			n += len(batch)
		}
	})
	defer in.Close()
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.CopyFS(dir, os.DirFS(copied)))
	serve("", func(log *jetlog.Log) {
		for _, session := range []string{"a", "b", "c", "d"} {
			natstest.Append(t, log, link(session))
		}
	})
	serve(address, func(*jetlog.Log) {
		batch, err := in.Next(t.Context())
		require.ErrorIs(t, err, jetlog.ErrStream)
		require.Empty(t, batch)
		require.ErrorIs(t, <-ended, jetlog.ErrStream)
	})
}
