// Package logtest holds helpers for the tests of jetlog and of the packages under it.
package logtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/ports"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
)

// Read returns the events of a session.
func Read(t testing.TB, log *jetlog.Log, session string) []events.Recorded {
	t.Helper()
	var out []events.Recorded
	for e, err := range log.Session(t.Context(), session, 0, math.MaxUint64) {
		require.NoError(t, err)
		out = append(out, e)
	}
	return out
}

// Fact returns the start of a turn.
func Fact(session, request string) events.Fact { return turntest.Started(session, request, "text") }

// IDs returns the event ids of a session in their order.
func IDs(t *testing.T, log *jetlog.Log, session string) (out []string) {
	t.Helper()
	for _, e := range Read(t, log, session) {
		out = append(out, e.ID)
	}
	return out
}

// Gated returns a log on a server of its own, its stream, and the folder of its blocks.
func Gated(t testing.TB) (log *jetlog.Log, stream jetstream.Stream, msgs string) {
	t.Helper()
	s := natstest.Server(t)
	log = natstest.LogOn(t, s, 1)
	stream = natstest.Stream(t, natstest.Connect(t, s), events.StreamName(0))
	return log, stream, filepath.Join(s.GateDir(), "jetstream", "$G", "streams", events.StreamName(0), "msgs")
}

// Add appends the start of a turn.
func Add(t testing.TB, log *jetlog.Log, session, request, text string) events.Position {
	t.Helper()
	return Append(t, log, turntest.Started(session, request, text)).Position
}

// Turn appends a turn of a session; an empty answer leaves it pending.
func Turn(t testing.TB, log *jetlog.Log, session, request, question, answer string) events.Position {
	t.Helper()
	at := natstest.Append(t, log, turntest.Started(session, request, question))
	if answer != "" {
		at = natstest.Append(t, log, turntest.Finalized(session, request, answer))
	}
	return at
}

// Turns returns a log with so many turns of the session s, and where each was answered.
func Turns(t testing.TB, turns int) (log *jetlog.Log, at []uint64) {
	t.Helper()
	log = natstest.Log(t, 1)
	for i := range turns {
		at = append(at, Turn(t, log, "s", fmt.Sprint(i), fmt.Sprint("q", i), fmt.Sprint("a", i)).Seq)
	}
	return log, at
}

// Append appends facts at once.
func Append(t testing.TB, log *jetlog.Log, facts ...events.Fact) jetlog.Ack {
	t.Helper()
	return must.Get(log.Append(t.Context(), jetlog.Append{Facts: facts}))(t)
}

// Head returns the last sequence of a partition.
func Head(t testing.TB, log *jetlog.Log, partition int) uint64 {
	t.Helper()
	return must.Get(log.Head(t.Context(), partition))(t).Seq
}

// ForeignMessages returns messages that any NATS client may store in a session, between two good events. None of them
// may hide the events, stop a reader, or be taken for a status of the server.
func ForeignMessages() map[string]*nats.Msg {
	msg := func(body string, headers ...string) *nats.Msg {
		m := &nats.Msg{Header: nats.Header{}, Data: []byte(body)}
		for h := range slices.Chunk(headers, 2) {
			m.Header[h[0]] = append(m.Header[h[0]], h[1])
		}
		return m
	}
	return map[string]*nats.Msg{
		"no header":               msg("x"),
		"nothing at all":          msg(""),
		"two values":              msg("{}", "ce-id", "a", "ce-id", "b", "ce-type", "x", "ce-type", "y"),
		"a heartbeat":             msg("", "Status", "100"),
		"a heartbeat with a body": msg("x", "Status", "100"),
		"no messages":             msg("", "Status", "404"),
		"request timeout":         msg("", "Status", "408"),
		"bad request":             msg("", "Status", "400"),
		"consumer deleted":        msg("", "Status", "409", "Description", "Consumer Deleted"),
		"no responders":           msg("", "Status", "503"),
		"end of batch":            msg("", "Status", "204", "Nats-Num-Pending", "0", "Nats-Last-Sequence", "1"),
		"another sequence": msg("x", "Nats-Sequence", "7", "Nats-Last-Sequence", "7",
			"Nats-Subject", "turns.1.other", "Nats-Time-Stamp", "never"),
		"another stream": msg("x", "Nats-Stream", "OTHER", "Nats-Consumer-Stalled", "x"),
	}
}

// Persist appends facts, and repeats the append until the events are on disk.
func Persist(ctx context.Context, log *jetlog.Log, facts ...events.Fact) error {
	ctx, cancel := context.WithTimeout(ctx, hang.Limit)
	defer cancel()
	for {
		ack, err := log.Append(ctx, jetlog.Append{Facts: facts})
		if err == nil {
			err = log.Durable(ctx, ack.Position)
		}
		if err == nil || !errors.Is(err, jetlog.ErrUnavailable) || ctx.Err() != nil {
			return err
		}
	}
}

// SetFsync replaces the fsync of a partition's gate, between two syncs.
func SetFsync(t testing.TB, log *jetlog.Log, partition int, fsync func(*os.File) error) {
	t.Helper()
	p := must.Get(log.Inside().Partition(partition))(t)
	require.NoError(t, p.Gate.Alone(t.Context(), func() error {
		p.Gate.Fsync = fsync
		return nil
	}))
}

// Restarting is a server on one address that can be stopped and started under load.
type Restarting struct {
	t      *testing.T
	dir    string
	listen string
	server *embedded.Server
}

// NewRestarting starts the server, which stops with the test.
func NewRestarting(t *testing.T) *Restarting {
	t.Helper()
	r := &Restarting{t: t, dir: t.TempDir(), listen: ports.FreeAddress(t)}
	r.start()
	t.Cleanup(func() { r.server.Stop() })
	return r
}

func (r *Restarting) start() {
	var err error
	r.server, err = embedded.Start(r.t.Context(), embedded.Config{Dir: r.dir, Sync: embedded.Group, Listen: r.listen})
	require.NoError(r.t, err)
}

// Restart stops the server and starts it again.
func (r *Restarting) Restart() {
	r.server.Stop()
	r.start()
}

// Log opens a log whose connection reconnects.
func (r *Restarting) Log() *jetlog.Log {
	nc := must.Get(nats.Connect(r.listen, nats.MaxReconnects(-1), nats.ReconnectWait(5*time.Millisecond)))(r.t)
	r.t.Cleanup(nc.Close)
	return must.Get(jetlog.Open(r.t.Context(), nc, jetlog.Config{GateDir: r.dir, Deadline: time.Second}))(r.t)
}
