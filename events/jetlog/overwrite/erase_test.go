package overwrite_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/overwrite"
)

func secret(session, request string) *events.TurnStarted {
	return &events.TurnStarted{
		TurnID: events.TurnID(session, request), SessionID: session, RequestID: request,
		Question: events.Question{QuestionNeutral: "SECRET of " + session},
	}
}

func TestErase(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	log := natstest.LogOn(t, s, 1)
	gone := must.Get(log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{secret("s", "r1")}}))(t)
	require.NotEmpty(t, natstest.Holding(t, "SECRET", []string{s.GateDir()}))
	kept := must.Get(log.Append(t.Context(), jetlog.Append{Facts: []events.Fact{logtest.Fact("s", "r2")}}))(t)
	for _, was := range []bool{true, false} {
		found := must.Get(overwrite.On(log).Erase(t.Context(), gone.Position))(t)
		require.Equal(t, was, found)
	}
	require.NoError(t, overwrite.On(log).Settle(t.Context(), 0))
	require.Empty(t, natstest.Holding(t, "SECRET", []string{s.GateDir()}))
	require.Len(t, logtest.IDs(t, log, "s"), 1)
	still := must.Get(log.Still(t.Context(), 0, 0, gone.Position.Seq))(t)
	require.True(t, still)
	still = must.Get(log.Still(t.Context(), 0, 0, kept.Position.Seq))(t)
	require.False(t, still)

	purged := must.Get(overwrite.On(log).Purge(t.Context(), "s", kept.Position.Seq))(t)
	require.Equal(t, 1, purged)
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
