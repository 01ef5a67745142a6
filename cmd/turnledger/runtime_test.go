package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A small heap gets the least room, and a large one 35 % of what is live.
func TestGCPercent(t *testing.T) {
	t.Parallel()
	require.Equal(t, 100, gcPercent(0))
	for live, room := range map[uint64]uint64{
		8 << 20: 256 << 20, 64 << 20: 256 << 20, 192 << 20: 256 << 20, 448 << 20: 256 << 20, 469 << 20: 235 << 20,
		560 << 20: 196 << 20, 960 << 20: 336 << 20, 5 << 30: 1792 << 20,
	} {
		got := live * uint64(gcPercent(live)) / 100
		require.InEpsilon(t, room, got, 0.01, "live: %d", live)
	}
	require.Equal(t, 10_000, gcPercent(1), "it has a bound")
}
