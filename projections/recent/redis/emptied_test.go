package redis_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/redis"
)

// A Redis that was emptied has forgotten the epochs, too. A runner of before may not write behind the claim of the
// next: its checkpoint would pass over what is not there any more.
func TestARunnerOfBeforeIsFencedInARedisThatWasEmptied(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cfg := redis.Config{URL: server.URL(), Limits: recent.Limits{TTL: time.Hour, MaxTurns: 10}, LoadTimeout: patience}
	before, next := view(t, cfg), view(t, cfg)
	from, err := before.Claim(t.Context(), 0)
	require.NoError(t, err)
	to := from
	to.Seq, to.EventID = 100, "an id"
	require.NoError(t, before.Apply(t.Context(), projections.Batch{From: from, To: to}))
	server.Stop()
	server.Restart(redistest.Empty)
	// A connection that was not used since is found broken by who uses it first.
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		claimed, err := next.Claim(t.Context(), 0)
		assert.NoError(c, err)
		assert.Zero(c, claimed.Seq)
	}, patience, 10*time.Millisecond)
	later := to
	later.Seq = 101
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.ErrorIs(c, before.Apply(t.Context(), projections.Batch{From: to, To: later}), projections.ErrFenced)
	}, patience, 10*time.Millisecond)
}

func TestARedisThatLetsNobodyInIsToldAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	require.NoError(t, f.view.Admitted(t.Context()))
	stranger, err := redis.New(redis.Config{URL: strings.Replace(f.server.URL(), "unix://", "unix://nobody:hidden@",
		1)})
	require.NoError(t, err)
	t.Cleanup(stranger.Close)
	err = stranger.Admitted(t.Context())
	require.ErrorIs(t, err, redis.ErrDenied)
	require.ErrorContains(t, err, "WRONGPASS")
	require.NotContains(t, err.Error(), "hidden")
	f.server.Stop()
	late, err := redis.New(redis.Config{URL: f.server.URL()})
	require.NoError(t, err)
	t.Cleanup(late.Close)
	require.NoError(t, late.Admitted(t.Context()), "it may come later")
}

// What fails at once after Redis gave no answer does so until it gives one, not for a time.
func TestARedisThatAnswersIsNotDown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.server.Stop()
	_, err := f.view.Load(t.Context(), "s", 0, -1)
	require.Error(t, err)
	f.server.Restart(redistest.Empty)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := f.view.Claim(t.Context(), 0)
		assert.NoError(c, err)
	}, patience, time.Millisecond)
	require.Zero(t, f.load(t, "s"))
}
