package store_test

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/printed"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/jetlog/store"
)

func open(t *testing.T, c store.Config) *store.Store {
	t.Helper()
	c.Logger = slog.New(slog.DiscardHandler)
	s := must.Get(store.Open(t.Context(), c))(t)
	t.Cleanup(s.Close)
	return s
}

func link(t *testing.T, s *store.Store, session string) events.Position {
	t.Helper()
	fact := &events.SessionLinked{SessionID: session, IdentityID: "ada"}
	return must.Get(s.Log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{fact}}))(t).Position
}

func TestTheEmbeddedServerIsOpenedAgain(t *testing.T) {
	t.Parallel()
	c := store.Config{
		Server: embedded.Config{
			Dir: filepath.Join(t.TempDir(), "nats"), Sync: embedded.Always, Logger: slog.New(slog.DiscardHandler),
		},
		Log: jetlog.Config{Partitions: 1},
	}
	s := open(t, c)
	require.NotNil(t, s.Server)
	require.Equal(t, 1, s.Log.Partitions())
	at := link(t, s, "first")
	require.NoError(t, s.Reopen(t.Context()))
	require.Equal(t, at.Seq+1, link(t, s, "second").Seq)
	s.Close()
	s = open(t, c)
	require.Equal(t, at.Seq+2, link(t, s, "third").Seq)
}

func TestAnOutsideNATS(t *testing.T) {
	t.Parallel()
	server := must.Get(embedded.Start(t.Context(), embedded.Config{
		Dir: t.TempDir(), Sync: embedded.Always, Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler),
	}))(t)
	t.Cleanup(server.Stop)
	s := open(t, store.Config{URL: server.URL(), Log: jetlog.Config{Partitions: 1}})
	require.Nil(t, s.Server)
	require.True(t, s.Config.Outside)
	link(t, s, "s")
}

func TestErrorsHideTheURL(t *testing.T) {
	t.Parallel()
	_, err := store.Open(t.Context(), store.Config{URL: "nats://u:SECRET@%zz"})
	require.ErrorIs(t, err, store.ErrURL)
	require.NotContains(t, err.Error(), "SECRET")
	ctx, stop := context.WithCancel(t.Context())
	stop() // nobody waits for a NATS that does not come
	_, err = store.Open(ctx, store.Config{
		URL: "nats://u:SECRET@127.0.0.1:1", Shown: "nats://127.0.0.1:1", Logger: slog.New(slog.DiscardHandler),
	})
	require.ErrorContains(t, err, "connect to NATS at nats://127.0.0.1:1: ")
	require.ErrorContains(t, err, "are TURNLEDGER_NATS_URL and its credentials right?")
	require.NotContains(t, err.Error(), "SECRET")
}

// A process that starts before its NATS listens waits for it, and says so once.
//
//conformance:l3
func TestAStartWaitsForNATSToListen(t *testing.T) {
	t.Parallel()
	free := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	address := free.Addr().String()
	require.NoError(t, free.Close())
	var log printed.Buffer
	opened := make(chan error, 1)
	go func() {
		s, err := store.Open(t.Context(), store.Config{
			URL: "nats://" + address, Shown: "nats://" + address, Log: jetlog.Config{Partitions: 1},
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err == nil {
			s.Close()
		}
		opened <- err
	}()
	const waits = "NATS does not answer yet"
	hang.Until(t, func() bool { return strings.Contains(log.String(), waits) })
	server := must.Get(embedded.Start(t.Context(), embedded.Config{
		Dir: t.TempDir(), Sync: embedded.Always, Listen: address, Logger: slog.New(slog.DiscardHandler),
	}))(t)
	t.Cleanup(server.Stop)
	require.NoError(t, <-opened)
	require.Equal(t, 1, strings.Count(log.String(), waits))
}
