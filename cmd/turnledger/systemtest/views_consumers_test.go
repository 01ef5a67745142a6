package systemtest_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
)

// TestAProcessHasOneConsumerAPartition: the decider, both views, the eraser, and the index of owners read the log
// together, from the first start on and after a restart that finds them behind.
func TestAProcessHasOneConsumerAPartition(t *testing.T) {
	t.Parallel()
	const partitions = 32
	address := stack.FreeAddress(t)
	dir := stack.DataDir(t)
	env := append(stack.ServeNATS(address), "TURNLEDGER_PARTITIONS=32", "TURNLEDGER_POSTGRES_URL="+pg.URL(t))
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
		// A consumer that was asked for twice, since the server of a busy machine took long, goes after a minute.
		var others atomic.Value
		hang.Until(t, func() bool {
			seen := map[string]int{}
			for k := range partitions {
				stream, err := js.Stream(t.Context(), events.StreamName(k))
				if err != nil {
					others.Store(err.Error())
					return false
				}
				if n := stream.CachedInfo().State.Consumers; n != 1 {
					seen[events.StreamName(k)] = n
				}
			}
			others.Store(fmt.Sprint(seen))
			return len(seen) == 0
		}, "streams with other than one consumer: %v", &others)
		nc.Close()
		p.Stop(t)
	}
}
