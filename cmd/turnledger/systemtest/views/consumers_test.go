package views_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/cmd/turnledger/systemtest/stack"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections/audit/pgtest"
)

// TestAProcessHasOneConsumerAPartition: the decider, both views, the eraser, and the index of owners read the log
// together, from the first start on and after a restart that finds them behind.
func TestAProcessHasOneConsumerAPartition(t *testing.T) {
	t.Parallel()
	const partitions = 256
	address := stack.FreeAddress(t)
	dir := stack.DataDir(t)
	env := append(stack.ServeNATS(address), "TURNLEDGER_PARTITIONS=256", "TURNLEDGER_POSTGRES_URL="+pgtest.URL(t))
	for life := range 2 {
		p := stack.Start(t, env, "serve", "--data-dir", dir)
		for i := range 20 {
			session := fmt.Sprint("life", life, "-", i)
			p.RecordTurn(t, session, "r", "question", "answer")
			p.LinkIdentity(t, session, "ada")
		}
		p.WaitNoLag(t)
		nc, err := nats.Connect(address)
		require.NoError(t, err)
		js, err := jetstream.New(nc)
		require.NoError(t, err)
		var last []int
		require.Eventually(t, func() bool {
			last = nil
			total := 0
			for k := range partitions {
				stream, err := js.Stream(t.Context(), events.StreamName(k))
				require.NoError(t, err)
				last = append(last, stream.CachedInfo().State.Consumers)
				total += last[k]
			}
			return total == partitions
		}, time.Minute, 100*time.Millisecond, "%v", &last)
		nc.Close()
		p.Stop(t)
	}
}
