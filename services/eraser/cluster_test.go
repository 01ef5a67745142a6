package eraser_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/natstest"
	"github.com/turnledger/turnledger/services/eraser"
	"github.com/turnledger/turnledger/services/history"
)

// On three replicas a text leaves the files of every node, the Raft logs included. Of
// these the server drops a file of 4 MB when it is full and a snapshot has come, and never
// overwrites one: so there is more to write first. The nodes take their snapshot at their
// end.
func TestNoNodeOfAClusterKeepsATextAfterItsSnapshot(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t)
	w := newWorldOn(t, c.Log(t, 1), "")
	w.turn("s", "r0", "KEPT")
	turn := w.turn("s", "r1", "SECRET-A")
	w.turn("t", "r1", "SECRET-B")
	w.link("t", "alice")
	var dirs []string
	for _, s := range c.Servers {
		dirs = append(dirs, s.StoreDir())
	}
	for _, secret := range []string{"KEPT", "SECRET-A", "SECRET-B"} {
		for i, dir := range dirs {
			require.Eventually(t, func() bool { return len(holding(t, dir, secret)) > 0 }, patience, lookEvery, "the search finds what there is on node %d", i)
		}
	}
	stop := w.erase(w.log, eraser.Config{})
	w.redact("s", turn)
	_, err := w.history.EraseSession(t.Context(), "t", history.Erasure{Reason: "asked to"})
	require.NoError(t, err)
	w.left("s", events.TypeTurnStarted, events.TypeTurnFinalized, events.TypeTurnRedacted)
	w.left("t", events.TypeSessionLinked, events.TypeSessionErased, events.TypeErasureReceipt)
	for i := range 10 {
		w.turn("more", fmt.Sprint(i), strings.Repeat("more ", 100_000))
	}
	stop()
	w.stop()
	for _, s := range c.Servers {
		s.Shutdown()
		s.WaitForShutdown()
	}
	for i, dir := range dirs {
		for _, secret := range []string{"SECRET-A", "SECRET-B"} {
			require.Empty(t, holding(t, dir, secret), "node %d", i)
		}
		require.NotEmpty(t, holding(t, dir, "KEPT"))
	}
}
