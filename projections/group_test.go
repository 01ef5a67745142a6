package projections_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/projections"
)

// Whatever the members are called and in whichever order they are known, each
// partition falls to one of them, and nobody has two more than another.
func TestPartitionsAreSharedOutEvenly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		members := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-f0-9-]{1,36}`), 1, 12, rapid.ID[string]).Draw(t,
			"members")
		partitions := 1 << rapid.IntRange(0, 8).Draw(t, "log2 of partitions")
		owner := map[int]string{}
		least, most := partitions, 0
		for _, m := range members {
			known := slices.Concat(rapid.Permutation(members).Draw(t, "known"), []string{m})
			own := projections.Share(m, known, partitions)
			least, most = min(least, len(own)), max(most, len(own))
			for _, k := range own {
				require.Empty(t, owner[k], "partition %d falls to two", k)
				owner[k] = m
			}
		}
		require.Len(t, owner, partitions)
		require.LessOrEqual(t, most-least, 1)
	})
}

func TestFewPartitionsMoveWhenAMemberGoes(t *testing.T) {
	t.Parallel()
	members := []string{"a", "b", "c", "d"}
	before, moved := map[int]string{}, 0
	for _, m := range members {
		for _, k := range projections.Share(m, members, 256) {
			before[k] = m
		}
	}
	for _, m := range members[:3] {
		for _, k := range projections.Share(m, members[:3], 256) {
			if before[k] != m {
				moved++
			}
		}
	}
	require.GreaterOrEqual(t, moved, 64, "those of the one that went")
	require.LessOrEqual(t, moved, 128, "of 256")
}

func TestAStrangerHasNothing(t *testing.T) {
	t.Parallel()
	require.Empty(t, projections.Share("x", []string{"a", "b"}, 8))
	require.Empty(t, projections.Share("x", nil, 8))
}
