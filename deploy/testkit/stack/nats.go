package stack

import (
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
)

// EventMessage returns the message that publishes a fact. If body is not empty, it replaces the fact's body.
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

// StartNATS starts a NATS that ends with the test. It syncs every event, as in deploy/nats.conf. Its data is in a
// folder of the test, unless options name one.
func StartNATS(t testing.TB, options natsserver.Options) *natsserver.Server {
	t.Helper()
	options.ServerName, options.Host, options.Port = "outside", "127.0.0.1", natsserver.RANDOM_PORT
	options.NoSigs, options.NoLog, options.JetStream, options.SyncAlways = true, true, true, true
	options.MaxPayload = 8 << 20
	if options.StoreDir == "" {
		options.StoreDir = t.TempDir()
	}
	server := must.Get(natsserver.NewServer(&options))(t)
	server.Start()
	t.Cleanup(func() { server.Shutdown(); server.WaitForShutdown() })
	require.True(t, server.ReadyForConnections(20*time.Second))
	return server
}
