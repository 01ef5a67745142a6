package systemtest_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// Nodes that the verb starts are reported: an erasure in whose midst all of them were killed is complete without help.
// The verb refuses the folder of a node that runs, and ends as its node does.
func TestNodesAreStartedAfterAScrub(t *testing.T) {
	t.Parallel()
	dirs := [3]string{t.TempDir(), t.TempDir(), t.TempDir()}
	nodes := natstest.StartNodes(t, natstest.NodesOptions{Dirs: dirs, Through: func(dir, url string) (_, _ []string) {
		return []string{stack.Binary(t), "scrub", dir, "--report", "--"}, []string{"TURNLEDGER_NATS_URL=" + url}
	}})
	p := stack.Start(t, []string{"TURNLEDGER_NATS_URL=" + nodes.URL(), "TURNLEDGER_NATS_LISTEN=",
		"TURNLEDGER_REPLICAS=3", "TURNLEDGER_ERASE_RATE=20"}, "serve")
	for i := range 40 {
		p.RecordTurn(t, "s", fmt.Sprint("r", i), "SECRET question", "SECRET answer")
	}
	id := p.Must(t, http.StatusAccepted, http.MethodDelete, stack.SessionPath("s"), nil)["receipt_id"].(string)
	receipt := func() map[string]any {
		status, out, err := p.Call(t.Context(), http.MethodGet, "/v1/receipts/"+id, nil)
		if err != nil || status != http.StatusOK {
			return nil
		}
		return out
	}
	hang.Until(t, func() bool { return receipt()["progress"] != nil })
	for i := range dirs {
		nodes.Kill(t, i)
	}
	for i := range dirs {
		nodes.Start(t, i)
	}
	nodes.Ready(t)
	hang.Until(t, func() bool { return receipt()["state"] == "complete" })
	require.Empty(t, natstest.Holding(t, "SECRET", dirs[:], "_js_"), "but for the Raft logs")

	code, _, errs := stack.Run(t, "scrub", dirs[0])
	require.Equal(t, stack.ExitFailed, code)
	require.Contains(t, errs, "in use by another process")
	require.NoError(t, nodes.Stop(t, 0))
	code, out, errs := stack.Run(t, "scrub", dirs[0])
	require.Equal(t, stack.ExitDone, code, errs)
	require.Contains(t, out, "scrubbed "+dirs[0])
	code, _, errs = stack.Run(t, "scrub", dirs[0], "--report")
	require.Equal(t, stack.ExitUsage, code, errs)
}
