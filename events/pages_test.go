package events_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
)

// The outside contract lists the types that a publisher may write and a reader may meet.
func TestTheContractNamesEachEvent(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile("../docs/contract.md"))(t)
	for _, typ := range events.Types() {
		require.Contains(t, string(page), "`"+typ+"`")
	}
}
