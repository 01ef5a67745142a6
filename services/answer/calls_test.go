package answer

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// A call whose caller hung up is known when it comes again; the newest are, however many hang up.
func TestCallsThatWereMissedAreBounded(t *testing.T) {
	t.Parallel()
	c := calls{of: map[string][]context.Context{}}
	for n := range 2 * mostMissed {
		ctx, cancel := context.WithCancel(t.Context())
		_, leave := c.enter(ctx, strconv.Itoa(n))
		cancel()
		leave()
	}
	require.Len(t, c.missed, mostMissed)
	for n, want := range map[int]bool{0: false, mostMissed - 1: false, mostMissed: true, 2*mostMissed - 1: true} {
		again, leave := c.enter(t.Context(), strconv.Itoa(n))
		require.Equal(t, want, again, n)
		leave()
	}
	require.Len(t, c.missed, mostMissed-2, "who was answered has missed nothing")
	require.Empty(t, c.of)
}
