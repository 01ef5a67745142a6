package overwrite_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/turntest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
)

func secret(session, request string) *events.TurnStarted {
	return turntest.Started(session, request, "SECRET of "+session)
}

func TestErase(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	log := natstest.LogOn(t, s, 1)
	gone := must.Get(log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{secret("s", "r1")}}))(t)
	require.NotEmpty(t, natstest.Holding(t, "SECRET", []string{s.GateDir()}))
	kept := must.Get(log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Fact("s", "r2")}}))(t)
	for _, was := range []bool{true, false} {
		require.Equal(t, was, must.Get(overwrite.On(log).Erase(t.Context(), gone.Position))(t))
	}
	require.NoError(t, overwrite.On(log).Settle(t.Context(), 0))
	require.Empty(t, natstest.Holding(t, "SECRET", []string{s.GateDir()}))
	require.Len(t, logtest.IDs(t, log, "s"), 1)
	still := must.Get(log.Still(t.Context(), 0, 0, gone.Position.Seq))(t)
	require.True(t, still)
	still = must.Get(log.Still(t.Context(), 0, 0, kept.Position.Seq))(t)
	require.False(t, still)

	require.Equal(t, 1, must.Get(overwrite.On(log).Purge(t.Context(), "s", kept.Position.Seq))(t))
	require.Empty(t, logtest.IDs(t, log, "s"))
	next := must.Get(log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Fact("s", "r3")}}))(t)
	require.NoError(t, log.Durable(t.Context(), next.Position))
	require.Equal(t, kept.Position.Seq+1, next.Position.Seq, "sequences stay taken")
}

// Three replicas: each overwrites the event. (Their Raft logs hold it until the servers
// make their next snapshot: docs/erasure.md.)
func TestEraseOnThreeReplicas(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t)
	log := c.Log(t, 1)
	gone := must.Get(log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{secret("s", "r1")}}))(t)
	must.Get(log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Fact("s", "r2")}}))(t)
	var dirs []string
	for _, server := range c.Servers {
		dirs = append(dirs, server.StoreDir())
	}
	stream := func(path string) bool { return strings.Contains(path, events.StreamName(0)) }
	blocks := func() (n int) {
		for _, path := range natstest.Holding(t, "SECRET", dirs) {
			if stream(path) {
				n++
			}
		}
		return n
	}
	hang.Until(t, func() bool { return blocks() == 3 },
		"each replica has it")
	must.Get(overwrite.On(log).Erase(t.Context(), gone.Position))(t)
	require.NoError(t, overwrite.On(log).Settle(t.Context(), 0))
	hang.Until(t, func() bool { return blocks() == 0 },
		"each replica has overwritten it")
}

// The server lets mirrors answer direct reads. This one holds one session only, as one
// that is behind lacks the last events.
func TestNoReadBelievesAMirror(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	before := natstest.LogOn(t, s, 1)
	add := func(f events.Fact) jetlog.Ack {
		ack := must.Get(before.Append(t.Context(), jetlog.Append{Facts: []events.Fact{f}}))(t)
		require.NoError(t, before.Durable(t.Context(), ack.Position))
		return ack
	}
	add(logtest.Fact("copied", "r1"))
	nc := natstest.Connect(t, s)
	js := must.Get(jetstream.New(nc))(t)
	copied := events.SessionSubject("copied")
	must.Get(js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "COPY", Mirror: &jetstream.StreamSource{Name: events.StreamName(0), FilterSubject: copied},
	}))(t)
	hang.Until(t, func() bool {
		m, err := nc.Request("$JS.API.DIRECT.GET."+events.StreamName(0), []byte(`{"last_by_subj":"`+copied+`"}`),
			time.Second)
		return err == nil && m.Header.Get(jetstream.StreamHeader) == "COPY"
	}, "the mirror answers")
	last := add(logtest.Fact("other", "r1")).Position

	since := natstest.LogOn(t, s, 1)
	for range 50 {
		require.Len(t, logtest.IDs(t, since, "other"), 1)
		require.Len(t, logtest.IDs(t, since, "copied"), 1)
		require.Equal(t, last, must.Get(since.Head(t.Context(), 0))(t))
		require.Zero(t, must.Get(since.SeqAt(t.Context(), 0, time.Now().Add(-time.Hour)))(t))
		require.Len(t, logtest.IDs(t, before, "copied"), 1)
	}
	require.Len(t, logtest.IDs(t, before, "other"), 1, "one that was open before has learned of it")
}

// What a mirror does not copy it is not waited for, and a mirror of a mirror holds what that
// does. A stream of another domain is another log's, whatever its name.
func TestWhichStreamsMirrorASubject(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	log := natstest.LogOn(t, s, 1)
	nc := natstest.Connect(t, s)
	js := must.Get(jetstream.New(nc))(t)
	// The server would wait for the other domain when it stops.
	_, err := nc.Subscribe("$JS.elsewhere.API.>", func(m *nats.Msg) { _ = m.Respond([]byte(`{"error":{"code":503}}`)) })
	require.NoError(t, err)
	mirror := func(name string, of jetstream.StreamSource) {
		must.Get(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Mirror: &of}))(t)
	}
	own, other := events.SessionSubject("own"), events.SessionSubject("other")
	bucket := own[:strings.LastIndex(own, ".")]
	turns := events.StreamName(0)
	mirror("ALL", jetstream.StreamSource{Name: turns})
	mirror("BUCKET", jetstream.StreamSource{Name: turns, FilterSubject: bucket + ".*"})
	mirror("TURNS", jetstream.StreamSource{Name: turns,
		SubjectTransforms: []jetstream.SubjectTransformConfig{{Source: "turns.>", Destination: "turns.>"}}})
	mirror("ALL2", jetstream.StreamSource{Name: "ALL"})
	mirror("OTHER", jetstream.StreamSource{Name: turns, FilterSubject: other})
	mirror("OTHER2", jetstream.StreamSource{Name: "OTHER"})
	mirror("IDENTITIES", jetstream.StreamSource{Name: turns,
		SubjectTransforms: []jetstream.SubjectTransformConfig{{Source: "identities.*.*",
			Destination: "identities.{{wildcard(1)}}.{{wildcard(2)}}"}}})
	mirror("FOREIGN", jetstream.StreamSource{Name: turns,
		External: &jetstream.ExternalStream{APIPrefix: "$JS.elsewhere.API"}})

	ack := must.Get(log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Fact("own", "r1")}}))(t)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		got, err := overwrite.On(log).Mirrors(t.Context(), own, ack.Position)
		assert.NoError(c, err)
		assert.ElementsMatch(c, []string{"ALL", "ALL2", "BUCKET", "TURNS"}, got)
	}, hang.Limit, 10*time.Millisecond)
	require.NotEqual(t, bucket, other[:strings.LastIndex(other, ".")])
	_, err = overwrite.On(log).Mirrors(t.Context(), other, ack.Position)
	require.ErrorIs(t, err, jetlog.ErrUnavailable, "one that copies it is waited for")
}

func TestMain(m *testing.M) {
	// nats-server 2.15.2 leaves these behind when it drops a half-written atomic batch
	// at its recovery (jetstream.go: SKIP without stopping the staged store).
	leaks.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*msgBlock).flushLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
		// A server that is stopped while it sets a mirror up waits for the mirror's consumer for up to 30 s.
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*stream).setupMirrorConsumer.func3"))
}
