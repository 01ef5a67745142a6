package words_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/turnledger/turnledger/projections/audit/words"
)

// BenchmarkTerms makes the terms of an answer of 600 bytes, with hardly a word twice.
func BenchmarkTerms(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	var text strings.Builder
	for text.Len() < 600 {
		for range 2 + rng.IntN(6) {
			text.WriteByte(byte('a' + rng.IntN(26)))
		}
		text.WriteByte(' ')
	}
	key := words.NewKey("k")
	b.ReportAllocs()
	for b.Loop() {
		key.Terms(nil, text.String())
	}
}
