package redis_test

import (
	"testing"

	"github.com/turnledger/turnledger/deploy/testkit/recenttest"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
)

func BenchmarkLoad(b *testing.B) {
	recenttest.BenchmarkLoad(b, opener(redistest.Start(b)), 1_000, 1_000_000)
}

func BenchmarkApply(b *testing.B) { recenttest.BenchmarkApply(b, opener(redistest.Start(b))) }
