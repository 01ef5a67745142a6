package jetlog_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events/jetlog"
)

// A restored stream is the same one on all nodes of a cluster: by when it
// came to be every process tells whether the log is still its own, whoever leads.
func TestARestoredStreamIsTheSameOnAllNodes(t *testing.T) {
	t.Parallel()
	from := natstest.Log(t, 1)
	const events = 40
	for i := range events {
		logtest.Add(t, from, fmt.Sprint("s", i%7), fmt.Sprint(i), "text")
	}
	cluster := natstest.StartCluster(t)
	restore(t, cluster.Log(t, 1), copyOf(t, from))
	log, nc := cluster.Log(t, 1), cluster.Connect(t)
	js, restored := natstest.JetStream(t, nc), log.Created(0)
	led, wrong := map[string]bool{}, error(nil)
	hang.Until(t, func() bool {
		s, err := js.Stream(t.Context(), "TURNS-0")
		if err != nil || s.CachedInfo().Cluster == nil || s.CachedInfo().Cluster.Leader == "" {
			return false
		}
		info := s.CachedInfo()
		led[info.Cluster.Leader] = true
		switch head, err := log.Head(t.Context(), 0); {
		case errors.Is(err, jetlog.ErrStream) || err == nil && head.Seq != events:
			wrong = fmt.Errorf("led by %s, it is at %s: %w", info.Cluster.Leader, head, err)
			return true
		case err != nil:
			return false // led by nobody at the moment
		}
		for _, r := range info.Cluster.Replicas {
			if !led[r.Name] {
				ask := fmt.Appendf(nil, `{"placement": {"preferred": %q}}`, r.Name)
				_, _ = nc.Request("$JS.API.STREAM.LEADER.STEPDOWN.TURNS-0", ask, 2*time.Second) // looked at again
				return false
			}
		}
		return true
	})
	require.NoError(t, wrong)
	require.Len(t, led, 3)
	require.Equal(t, restored, cluster.Log(t, 1).Created(0), "to those who start now, too")
	require.False(t, restored.Equal(from.Created(0)), "every projection notices that it is another stream")
}
