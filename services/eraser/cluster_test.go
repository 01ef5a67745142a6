package eraser_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/eraser"
)

// On three replicas a text leaves the blocks of every node. The Raft logs the server never
// overwrites: it drops their files behind a snapshot, which the long form waits for while
// the stream is written to.
func TestNoNodeOfAClusterKeepsAnErasedText(t *testing.T) {
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
			hang.Until(t, func() bool { return len(holding(t, dir, secret)) > 0 },
				"the search finds what there is on node %d", i)
		}
	}
	w.erase(inOnePiece(w.log), eraser.Config{})
	w.redact("s", turn)
	must.Get(w.history.EraseSession(t.Context(), "t", services.Erasure{Reason: "asked to"}))(t)
	w.left("s", events.TypeTurnStarted, events.TypeTurnFinalized, events.TypeTurnRedacted)
	w.left("t", events.TypeSessionLinked, events.TypeSessionErased, events.TypeErasureReceipt)
	for i, dir := range dirs {
		for _, secret := range []string{"SECRET-A", "SECRET-B"} {
			hang.Until(t, func() bool {
				return len(natstest.Holding(t, secret, []string{dir}, raftLogs)) == 0
			}, "node %d", i)
		}
		require.NotEmpty(t, natstest.Holding(t, "KEPT", []string{dir}, raftLogs))
	}
	if seeds(0, 1) == 0 {
		return
	}
	began, tick := time.Now(), time.NewTicker(time.Second)
	defer tick.Stop()
	for i := 0; len(natstest.Holding(t, "SECRET", dirs)) > 0; i++ {
		require.Less(t, time.Since(began), 10*time.Minute, "%v", natstest.Holding(t, "SECRET", dirs))
		w.turn("more", fmt.Sprint(i), strings.Repeat("more ", 20_000))
		<-tick.C
	}
	t.Logf("the Raft logs held the text for %s", time.Since(began).Round(time.Second))
}

// raftLogs is the folder of a server's Raft logs.
const raftLogs = "_js_"
