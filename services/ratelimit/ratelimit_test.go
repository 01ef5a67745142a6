package ratelimit_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/services/ratelimit"
)

//conformance:h28
func TestSessionsAndIdentitiesAreHeldToTheirRates(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	l := ratelimit.New(ratelimit.Rate{Requests: 2, Per: time.Minute}, ratelimit.Rate{Requests: 3, Per: time.Minute},
		func() time.Time { return now })
	allow := func(session, identity string) bool {
		_, ok := l.Allow("turn", session, identity)
		return ok
	}
	require.True(t, allow("a", "ada"))
	require.True(t, allow("a", "ada"))
	wait, ok := l.Allow("turn", "a", "ada")
	require.False(t, ok)
	require.Equal(t, 30*time.Second, wait)
	require.True(t, allow("b", "ada"), "what was refused is not counted for the identity")
	require.False(t, allow("c", "ada"), "the identity has had its three")
	require.True(t, allow("c", ""))
	_, ok = l.Allow("context", "a", "")
	require.True(t, ok, "kinds are counted apart")
	now = now.Add(30 * time.Second)
	require.True(t, allow("a", ""))
	require.False(t, allow("a", ""))
	require.Nil(t, ratelimit.New(ratelimit.Rate{}, ratelimit.Rate{}, nil))
}

// Many at once get what one after the other would.
func TestTheLimitHoldsForManyAtOnce(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	l := ratelimit.New(ratelimit.Rate{Requests: 10, Per: time.Hour}, ratelimit.Rate{}, func() time.Time { return now })
	var passed atomic.Int64
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			if _, ok := l.Allow("turn", fmt.Sprint(i%2), ""); ok {
				passed.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 20, passed.Load())
}

func TestRatesAreRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "off", "off": "off", "5": "5/1s", "10/s": "10/1s", "60/m": "60/1m0s",
		"3/10s": "3/10s"} {
		var r ratelimit.Rate
		require.NoError(t, r.UnmarshalText([]byte(text)), text)
		require.Equal(t, want, r.String())
	}
	for _, text := range []string{"x", "0/s", "-1/s", "5/", "5/x", "5/0s", "/s", "1.5/s"} {
		require.Error(t, new(ratelimit.Rate).UnmarshalText([]byte(text)), text)
	}
}
