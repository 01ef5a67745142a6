package redis_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
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
	from := must.Get(before.Claim(t.Context(), 0))(t)
	to := from
	to.Seq, to.EventID = 100, "an id"
	require.NoError(t, before.Apply(t.Context(), projections.Batch{From: from, To: to}))
	server.Stop()
	server.Restart(redistest.Empty)
	hang.Until(t, func() bool {
		claimed, err := next.Claim(t.Context(), 0)
		return err == nil && claimed.Seq == 0
	})
	later := to
	later.Seq = 101
	fenced(t, before, projections.Batch{From: to, To: later})
}

func TestARedisThatLetsNobodyInIsToldAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	require.NoError(t, f.view.Admitted(t.Context()))
	stranger := must.Get(redis.New(redis.Config{URL: strings.Replace(f.server.URL(), "unix://", "unix://nobody:hidden@",
		1)}))(t)
	t.Cleanup(stranger.Close)
	err := stranger.Admitted(t.Context())
	require.ErrorIs(t, err, redis.ErrDenied)
	require.ErrorContains(t, err, "WRONGPASS")
	require.NotContains(t, err.Error(), "hidden")
	f.server.Stop()
	late := must.Get(redis.New(redis.Config{URL: f.server.URL()}))(t)
	t.Cleanup(late.Close)
	require.NoError(t, late.Admitted(t.Context()), "it may come later")
}

// What fails at once after Redis gave no answer does so until it gives one, not for a time.
func TestARedisThatAnswersIsNotDown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.server.Stop()
	require.Error(t, must.Err(f.view.Load(t.Context(), "s", 0, -1)))
	f.server.Restart(redistest.Empty)
	hang.Until(t, func() bool {
		_, err := f.view.Claim(t.Context(), 0)
		return err == nil
	})
	require.Zero(t, f.load(t, "s"))
}
