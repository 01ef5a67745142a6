package audit_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkRecall searches what an identity said, of 2,000 turns (all that are searched) and of 10,000, beside
// 10,000 of others. Texts are those of a chat: some 0.2 KB a question, 0.5 KB an answer, other words in each. Every
// one of them has a word of the query. A prompt waits 300 ms for its memory.
func BenchmarkRecall(b *testing.B) {
	for _, turns := range []int{2000, 10_000} {
		b.Run(fmt.Sprint("turns=", turns), func(b *testing.B) {
			log := newJournal()
			tell := func(session, user string, turns int) {
				log.add(linked(session, user))
				for i := range turns {
					at := i * 37 % 400
					log.add(exchange(session, fmt.Sprint("r", i),
						fmt.Sprint("What of item ", i, "? ", prose[at:at+180]),
						fmt.Sprint("Shelf ", i%97, ". ", prose[at:at+480]))...)
				}
			}
			tell("theirs", "other", 10_000)
			tell("s", "u", turns)
			a := filled(b, log, 5000)
			took := make([]time.Duration, 0, b.N)
			for b.Loop() {
				began := time.Now()
				found, _, err := a.Recall(b.Context(), "u", fmt.Sprint("where is item ", turns-7, " kept?"), 10)
				took = append(took, time.Since(began))
				require.NoError(b, err)
				require.Equal(b, 10, len(found))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}
