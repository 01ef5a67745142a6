package rebuild_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/projections"
)

// A log that does not answer for a while, as in an election, does not end a rebuild, whatever it
// is asked for first.
func TestARebuildWaitsForTheLog(t *testing.T) {
	t.Parallel()
	for name, locks := range map[string]func(wire sync.Locker, g projections.Generation) projections.Generation{
		"head": func(wire sync.Locker, g projections.Generation) projections.Generation { silent(wire); return g },
		"consumer": func(wire sync.Locker, g projections.Generation) projections.Generation {
			return claimedInSilence{g, wire}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc, wire := natstest.Wired(t)
			log := must.Get(jetlog.Open(t.Context(), nc, jetlog.Config{}))(t)
			fill(t, log, 3, 4)
			v := openMemory(t, log)
			live(t, log, v)
			caughtUp(t, log, v)
			require.NoError(t, rebuilt(t, log,
				breakable{v, func(g projections.Generation) projections.Generation { return locks(wire, g) }}))
			require.Equal(t, uint64(2), number(t, v))
		})
	}
}

// silent cuts the log off for a while: each question is given up after 5 s.
func silent(wire sync.Locker) {
	wire.Lock()
	time.AfterFunc(8*time.Second, wire.Unlock)
}

// claimedInSilence loses the log when the rebuild has its partition, and before it reads it.
type claimedInSilence struct {
	projections.Generation
	wire sync.Locker
}

func (g claimedInSilence) Claim(ctx context.Context, partition int) (projections.Checkpoint, error) {
	silent(g.wire)
	return g.Generation.Claim(ctx, partition)
}
