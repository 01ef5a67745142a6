package projections

import (
	"context"
	"hash/fnv"
	"slices"
	"strconv"
	"time"
)

// Group lets the runners that feed one store, in several processes, know of each other (desk.Members). It only decides
// who tries: if a runner is wrong about the others, the checkpoint's epoch fences one of them.
type Group interface {
	// Beat notes that a member lives. It returns all members whose last beat is no older than alive, including the
	// caller, in any order.
	Beat(ctx context.Context, member string, alive time.Duration) (members []string, err error)
	// Leave removes a member at once.
	Leave(ctx context.Context, member string) error
}

// Share returns a member's partitions. Callers that pass the same members get the same assignment. The numbers of
// partitions of two members differ by one at most, and few partitions move when a member comes or goes (rendezvous
// hashing with a bound).
func Share(member string, members []string, partitions int) []int {
	members = slices.Compact(slices.Sorted(slices.Values(members)))
	if len(members) == 0 {
		return nil
	}
	// Only partitions%len(members) members may have one more partition: the first ones to reach it.
	least, more := partitions/len(members), partitions%len(members)
	held := make(map[string]int, len(members))
	var own []int
	for k := range partitions {
		best, weight := "", uint64(0)
		for _, m := range members {
			free := held[m] < least || held[m] == least && more > 0
			if w := affinity(m, k); free && (best == "" || w > weight) {
				best, weight = m, w
			}
		}
		if held[best]++; held[best] > least {
			more--
		}
		if best == member {
			own = append(own, k)
		}
	}
	return own
}

func affinity(member string, partition int) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(member + "/" + strconv.Itoa(partition)))
	// FNV's last byte barely reaches the upper bits; this spreads it (murmur3's finalizer).
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x
}
