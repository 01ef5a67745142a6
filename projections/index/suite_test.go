package index_test

import (
	"os"
	"testing"

	"github.com/turnledger/turnledger/deploy/testkit/indextest"
	"github.com/turnledger/turnledger/projections/index"
)

// The index holds what the log says, whoever writes it and whatever happens meanwhile. Its store is in memory here;
// that it does what Weaviate does is the contract of both.
func TestTheIndexHoldsWhatTheLogSays(t *testing.T) {
	t.Parallel()
	indextest.Run(t)
}

func TestLiveEqualsRebuiltEqualsTheLog(t *testing.T) {
	t.Parallel()
	logs := 8
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		logs = 200
	}
	indextest.Property(t, logs, inMemory)
}

// What the suite runs on keeps the contract that Weaviate keeps.
func TestTheStoreInMemoryKeepsTheContract(t *testing.T) {
	t.Parallel()
	indextest.Contract(t, inMemory)
}

func inMemory(testing.TB) index.Store { return indextest.NewMemory().Store() }
