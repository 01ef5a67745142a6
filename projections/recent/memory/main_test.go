package memory_test

import (
	"testing"

	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/recenttest"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/projections/recent"
	"github.com/turnledger/turnledger/projections/recent/memory"
)

func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }

func open(_ testing.TB, limits recent.Limits, rules conversation.Rules) recenttest.View {
	v := memory.New(limits, rules, nil)
	return recenttest.View{View: v, Reader: v}
}

//conformance:h21 h23 h39
func TestConformance(t *testing.T) {
	t.Parallel()
	recenttest.Run(t, open)
}

// openPacked opens a view that packs each session after each event.
func openPacked(_ testing.TB, limits recent.Limits, rules conversation.Rules) recenttest.View {
	v := memory.NewPacked(limits, rules, nil, 0)
	return recenttest.View{View: v, Reader: v}
}

// TestConformancePacked: a packed session keeps all the promises of one that is not.
func TestConformancePacked(t *testing.T) {
	t.Parallel()
	recenttest.Run(t, openPacked)
}
