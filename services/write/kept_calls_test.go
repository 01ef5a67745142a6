package write_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/write"
)

// The event that prunes a turn names the calls by which the turn has come, as many as its header has room for.
//
//conformance:o37
func TestAPruneNamesTheCallsOfItsTurn(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t, 1)
	s := runOn(t, log)
	begins := services.NewSession{
		AddMessages: decide.AddMessages{SessionID: "s", RequestID: "begin", Now: time.Now()},
		Kind:        events.KindConversation,
	}
	must.Get(s.BeginSession(t.Context(), begins, services.Call{Body: "begin"}))(t)
	key := func(n int) services.Call { return services.Call{Key: fmt.Sprintf("%048x", n)} }
	must.Get(s.AddMessages(t.Context(), says("first", "q", "a"), key(0)))(t)
	const many = 520
	for n := 1; n < many; n++ {
		add := says(fmt.Sprint("r", n), "", fmt.Sprint("more ", n, "."))
		add.Messages = add.Messages[1:]
		must.Get(s.AddMessages(t.Context(), add, key(n)))(t)
	}
	must.Get(s.AddMessages(t.Context(), says("last", "another"), key(many)))(t)
	must.Get(s.PruneTurn(t.Context(), without("s", events.TurnID("s", "first#0"), "p", "more 7.")))(t)
	all := logtest.Read(t, log, "s")
	pruned := all[len(all)-1]
	require.Equal(t, 500, write.KeptCalls(pruned), "the oldest are left out")
	require.Less(t, len(pruned.Call), 1<<16-1024)
	require.Contains(t, pruned.Call, key(many-1).Key)
	require.NotContains(t, pruned.Call, key(many).Key, "it brought nothing to the turn")
}

// A header may be anything, and names no call that can't be.
func TestHeadersThatNameNoCalls(t *testing.T) {
	t.Parallel()
	at := events.Position{Seq: 10}
	require.Equal(t, 2, write.KeptCalls(events.Recorded{Position: at, Call: "+kx.1.9,ky.9.1"}))
	for _, one := range []string{
		"", "kx.1.9", "bx.1.9", "kx.0.1", "kx.10.1", "kx.11.1", "kx.-1.1", "kx.1.0", "kx.1.-1", "kx.1.1001", "kx.a.b",
		"k", "kx.1", "kx.1.2.3", strings.Repeat(",", 100),
	} {
		e := events.Recorded{Position: at, Call: "+" + one}
		if one == "kx.1.9" { // without its mark
			e.Call = one
		}
		require.Zero(t, write.KeptCalls(e), one)
	}
}
