package memory_test

import (
	"testing"

	"github.com/turnledger/turnledger/deploy/testkit/recenttest"
)

func BenchmarkLoad(b *testing.B) { recenttest.BenchmarkLoad(b, open, 1_000, 100_000, 1_000_000) }

func BenchmarkApply(b *testing.B) { recenttest.BenchmarkApply(b, open) }

func BenchmarkLoadPacked(b *testing.B) { recenttest.BenchmarkLoad(b, openPacked, 1_000) }

func BenchmarkApplyPacked(b *testing.B) { recenttest.BenchmarkApply(b, openPacked) }
