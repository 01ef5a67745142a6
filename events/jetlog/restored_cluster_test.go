package jetlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/jetlog/operate"
)

// A restored stream is the same one on all nodes of a cluster: by when it
// came to be every process tells whether the log is still its own, whoever leads.
func TestARestoredStreamIsTheSameOnAllNodes(t *testing.T) {
	t.Parallel()
	from := natstest.Log(t, 2)
	for i := range 40 {
		logtest.Add(t, from, fmt.Sprint("s", i%7), fmt.Sprint(i), "text")
	}
	copies := copyOf(t, from)
	heads := make([]uint64, 2)
	for k := range heads {
		head, err := from.Head(t.Context(), k)
		require.NoError(t, err)
		heads[k] = head.Seq
	}
	cluster := natstest.StartCluster(t)
	empty := cluster.Log(t, 2)
	require.NoError(t, operate.On(empty).Vacate(t.Context()))
	require.NoError(t, operate.On(empty).Restore(t.Context(), func(k int) (io.Reader,
		error) {
		return bytes.NewReader(copies[k]), nil
	}, whole))
	require.NoError(t, operate.On(empty).Restored(t.Context()))
	require.NoError(t, operate.On(empty).Restored(t.Context()))
	log := cluster.Log(t, 2)
	nc := cluster.Connect(t)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	restored := []time.Time{log.Created(0), log.Created(1)}
	for k := range 2 {
		name := fmt.Sprint("TURNS-", k)
		led, wrong := map[string]bool{}, error(nil)
		hang.Until(t, func() bool {
			s, err := js.Stream(t.Context(), name)
			if err != nil || s.CachedInfo().Cluster == nil || s.CachedInfo().Cluster.Leader == "" {
				return false
			}
			info := s.CachedInfo()
			led[info.Cluster.Leader] = true
			switch head, err := log.Head(t.Context(), k); {
			case errors.Is(err, jetlog.ErrStream) || err == nil && head.Seq != heads[k]:
				wrong = fmt.Errorf("%s, led by %s, is at %s: %w", name, info.Cluster.Leader, head, err)
				return true
			case err != nil:
				return false // led by nobody at the moment
			}
			for _, r := range info.Cluster.Replicas {
				if !led[r.Name] {
					ask := fmt.Appendf(nil, `{"placement": {"preferred": %q}}`, r.Name)
					_, _ = nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+name, ask, 2*time.Second) // looked at again
					return false
				}
			}
			return true
		})
		require.NoError(t, wrong)
		require.Len(t, led, 3)
		require.Equal(t, restored[k], cluster.Log(t, 2).Created(k), "to those who start now, too")
	}
	require.False(t, restored[0].Equal(from.Created(0)), "every projection notices that it is another stream")
}
