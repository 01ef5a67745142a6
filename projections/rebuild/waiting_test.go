package rebuild_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/natstest"
	"github.com/turnledger/turnledger/projections/rebuild"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/memory"
)

// A log that does not answer for a while, as in an election, does not end a rebuild.
func TestARebuildWaitsForTheLog(t *testing.T) {
	t.Parallel()
	nc, wire := natstest.Wired(t)
	log, err := jetlog.Open(t.Context(), nc, jetlog.Config{})
	require.NoError(t, err)
	fill(t, log, 3, 4)
	v := memory.New(recent.Limits{TTL: rules.SessionTTL, MaxTurns: 10}, rules, nil)
	live(t, log, view{Rebuildable: v})
	caughtUp(t, log, view{Rebuildable: v})
	r, err := rebuild.Begin(t.Context(), log, v, rebuild.Config{Rules: rules})
	require.NoError(t, err)
	wire.Lock()
	time.AfterFunc(6*time.Second, wire.Unlock) // a question for the head is given up after 5 s
	require.NoError(t, r.Run(t.Context()))
	require.Equal(t, uint64(2), number(t, v))
}
