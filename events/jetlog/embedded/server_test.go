package embedded_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
)

func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }

func start(t *testing.T, cfg embedded.Config) *embedded.Server {
	t.Helper()
	s := must.Get(embedded.Start(t.Context(), cfg))(t)
	t.Cleanup(s.Stop)
	return s
}

func TestOneProcessPerDirectory(t *testing.T) {
	t.Parallel()
	cfg := embedded.Config{Dir: filepath.Join(t.TempDir(), "made", "on", "the", "way"), Sync: embedded.Group}
	s := start(t, cfg)
	require.NoError(t, s.Healthy())
	_, err := embedded.Start(t.Context(), cfg)
	require.ErrorIs(t, err, embedded.ErrLocked)
	require.ErrorContains(t, err, cfg.Dir)
	require.ErrorContains(t, err, "TURNLEDGER_DATA_DIR")
	require.NoError(t, s.Healthy(), "the first goes on")
	s.Stop()
	s.Stop()
	require.Error(t, s.Healthy())
	start(t, cfg)
}

func TestAddressesThatMayNotBeUsed(t *testing.T) {
	t.Parallel()
	for listen, says := range map[string]string{
		"0.0.0.0:4222":     "credentials",
		":4222":            "credentials",
		"[::]:4222":        "credentials",
		"10.1.2.3:4222":    "credentials",
		"example.com:4222": "credentials",
		"127.0.0.1":        "host:port",
		"127.0.0.1:nats":   "port",
		"127.0.0.1:70000":  "port",
		"127.0.0.1:-2":     "port",
	} {
		for _, user := range []string{"", "u"} {
			dir := t.TempDir()
			_, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, Sync: embedded.Group, Listen: listen,
				User: user})
			require.ErrorIs(t, err, embedded.ErrListen, listen)
			require.ErrorContains(t, err, says, listen)
		}
	}
}

func TestListenerAsksForCredentials(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{Dir: t.TempDir(), Sync: embedded.Group, Listen: "0.0.0.0:0", User: "u",
		Password: "p"})
	_, port := must.Two(net.SplitHostPort(s.URL()[len("nats://"):]))(t)
	address := "nats://127.0.0.1:" + port
	must.Fail(nats.Connect(address))(t, nats.ErrAuthorization)
	must.Fail(nats.Connect(address, nats.UserInfo("u", "wrong")))(t, nats.ErrAuthorization)
	nc := must.Get(nats.Connect(address, nats.UserInfo("u", "p")))(t)
	nc.Close()
	nc = must.Get(s.Connect())(t)
	nc.Close()
	require.NotContains(t, s.URL(), "p@")
}

func TestTakenPortFailsAtOnce(t *testing.T) {
	t.Parallel()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { _ = l.Close() }()
	dir := t.TempDir()
	_, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, Sync: embedded.Group, Listen: l.Addr().String()})
	require.ErrorIs(t, err, embedded.ErrListen)
	start(t, embedded.Config{Dir: dir, Sync: embedded.Group}) // the directory is free again
}

func TestNoListenerUnlessAsked(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{Dir: t.TempDir(), Sync: embedded.Always})
	require.Empty(t, s.URL())
	require.Empty(t, s.GateDir())
}

func TestStartThatCantBe(t *testing.T) {
	t.Parallel()
	_, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), Sync: "sometimes"})
	require.ErrorContains(t, err, "group, always or none")
	_, err = embedded.Start(t.Context(), embedded.Config{Sync: embedded.Group})
	require.ErrorContains(t, err, "store directory")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	must.Fail(embedded.Start(ctx, embedded.Config{Dir: dir, Sync: embedded.Group}))(t, context.Canceled)
	start(t, embedded.Config{Dir: dir, Sync: embedded.Group})
}
