package stack

import (
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
)

// EventMessage returns the message that publishes a fact, with another body where one is given.
func EventMessage(f events.Fact, body string) *nats.Msg {
	env, err := events.Encode(f, time.Now())
	if err != nil {
		panic(err)
	}
	m := &nats.Msg{Subject: env.Subject, Header: nats.Header(env.Header), Data: env.Body}
	if body != "" {
		m.Data = []byte(body)
	}
	return m
}

// StartNATS starts a NATS on a folder that syncs every event, as deploy/nats.conf has it, and returns its address. It
// ends with the test, or by stop.
func StartNATS(t testing.TB, dir string) (url string, stop func()) {
	t.Helper()
	server, err := natsserver.NewServer(&natsserver.Options{
		ServerName: "outside", Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: dir, SyncAlways: true, MaxPayload: 8 << 20,
	})
	require.NoError(t, err)
	server.Start()
	stop = sync.OnceFunc(func() { server.Shutdown(); server.WaitForShutdown() })
	t.Cleanup(stop)
	require.True(t, server.ReadyForConnections(20*time.Second))
	return server.ClientURL(), stop
}
