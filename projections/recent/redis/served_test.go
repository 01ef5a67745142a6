package redis_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/redis"
)

// A process that has claimed nothing, since it only reads or has just begun, is told of all partitions that somebody
// feeds.
func TestServedTellsWhatOthersHaveClaimed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cfg := redis.Config{URL: server.URL(), Prefix: "served", Limits: recent.Limits{TTL: time.Hour, MaxTurns: 10},
		LoadTimeout: patience}
	feeding, reading := view(t, cfg), view(t, cfg)
	none := must.Get(reading.Served(t.Context()))(t)
	require.Empty(t, none.At)
	created := time.Now().UTC().Truncate(time.Microsecond)
	var want []projections.Checkpoint
	for _, k := range []int{0, 7, 255} {
		cp := must.Get(feeding.Claim(t.Context(), k))(t)
		cp.Partition, cp.Created = k, created
		to := cp
		to.Seq, to.EventID = uint64(10+k), "an id"
		require.NoError(t, feeding.Apply(t.Context(), projections.Batch{From: cp, To: to}))
		want = append(want, to)
	}
	got := must.Get(reading.Served(t.Context()))(t)
	require.Equal(t, uint64(1), got.Generation)
	require.NotEmpty(t, got.Store)
	require.Equal(t, none.Store, got.Store)
	require.Equal(t, want, got.At)
}
