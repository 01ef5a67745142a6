package audit_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/projections"
)

// BenchmarkSearch searches 10,000 turns of one identity, and 40,000 of all, for words that are in most turns, in every
// hundredth, in three and in none.
func BenchmarkSearch(b *testing.B) {
	log, rng := newJournal(), rand.New(rand.NewPCG(1, 1))
	log.add(linked("a", "ada"), linked("b", "bob"))
	words := rand.NewZipf(rng, 1.1, 3, 20_000)
	text := func(n int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprint("w", words.Uint64())
		}
		return strings.Join(all, " ")
	}
	for n := range 40_000 {
		answer := text(80)
		if n%100 == 0 {
			answer += " hundredth"
		}
		if n < 6 {
			answer += " three"
		}
		log.asked([]string{"a", "b", "b", "b"}[n%4], fmt.Sprint(n), text(20), answer)
	}
	a := filled(b, log, 5000)
	a.exec("vacuum analyze turnledger.questions")
	a.exec("vacuum analyze turnledger.answers")
	for _, identity := range []string{"ada", ""} {
		for _, query := range []string{"w0", "w0 w1", "hundredth", "three", "none"} {
			b.Run(identity+"/"+query, func(b *testing.B) {
				took := make([]time.Duration, 0, b.N)
				for b.Loop() {
					began := time.Now()
					f := projections.SearchFilter{Query: query, IdentityID: identity}
					_, _, _, err := a.Search(b.Context(), f, 10, "")
					require.NoError(b, err)
					took = append(took, time.Since(began))
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
				b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			})
		}
	}
}
