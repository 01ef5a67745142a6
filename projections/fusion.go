package projections

import "github.com/google/uuid"

// rankConstant damps the first ranks where lists are fused (Cormack et al., 2009).
const rankConstant = 60

// FusedScores fuses lists of turns by rank. It returns a score for each turn: 1 for one that is first in all lists.
func FusedScores(lists ...[]uuid.UUID) map[uuid.UUID]float64 {
	out := map[uuid.UUID]float64{}
	for _, list := range lists {
		for rank, id := range list {
			out[id] += float64(rankConstant+1) / float64(len(lists)*(rankConstant+1+rank))
		}
	}
	return out
}
