package jetlog_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/embedded"
	"github.com/turnledger/turnledger/events/jetlog/internal/layout"
)

// A process that can't see the gate must neither acknowledge nor show what is
// behind it.
func TestAnotherProcessMayNotUseALogBehindAGate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func(sync embedded.Sync) error {
		s := must.Get(embedded.Start(t.Context(), embedded.Config{Dir: dir, Sync: sync, Listen: "127.0.0.1:0"}))(t)
		defer s.Stop()
		own := must.Get(s.Connect())(t)
		defer own.Close()
		must.Get(jetlog.Open(t.Context(), own, jetlog.Config{GateDir: s.GateDir()}))(t)
		nc := must.Get(nats.Connect(s.URL()))(t)
		defer nc.Close()
		_, err := jetlog.Open(t.Context(), nc, jetlog.Config{Outside: true})
		return err
	}
	err := open(embedded.Group)
	require.ErrorIs(t, err, jetlog.ErrStream)
	require.ErrorContains(t, err, "TURNLEDGER_SYNC=always")
	require.NoError(t, open(embedded.Always))
	require.ErrorIs(t, open(embedded.Group), jetlog.ErrStream)
}

// Nodes that have it from another time agree on when a stream was restored, and one that was
// restored otherwise later is not taken for it.
func TestWhenAStreamWasRestoredCounts(t *testing.T) {
	t.Parallel()
	restored := time.Date(2026, 11, 22, 9, 0, 0, 5, time.UTC)
	marks := map[string]string{"turnledger.restored": restored.Format(time.RFC3339Nano)}
	for created, want := range map[time.Time]time.Time{
		restored.Add(time.Second):    restored,
		restored.Add(-time.Minute):   restored,
		restored.AddDate(-1, 0, 0):   restored,
		restored.Add(25 * time.Hour): restored.Add(25 * time.Hour),
	} {
		require.Equal(t, want, layout.Made(created, marks))
		require.Equal(t, created, layout.Made(created, nil))
	}
}
