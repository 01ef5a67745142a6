package main

import (
	"log/slog"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
)

// A port that another process takes between the look at it and the start is not wrong use, if nobody asked for it.
func TestAListenerOnlyIfThePortIsFree(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	cfg := config.Config{
		DataDir: t.TempDir(), Sync: string(embedded.Always), Partitions: 1, Replicas: 1,
		NATSListen: taken.Addr().String(),
	}
	_, err = openStore(t.Context(), cfg, slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, config.ErrUsage)
	cfg.NATSIfFree = true
	s, err := openStore(t.Context(), cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.Empty(t, s.Server.URL())
	s.Close()
}
