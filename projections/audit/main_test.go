package audit_test

import (
	"testing"

	"github.com/turnledger/turnledger/events/natstest/leaks"
	"github.com/turnledger/turnledger/projections/audit/pgtest"
	"github.com/turnledger/turnledger/projections/viewtest"
)

func TestMain(m *testing.M) {
	viewtest.AtMost(1000) // each history of a property takes PostgreSQL about 0.1 s
	leaks.VerifyTestMain(pgtest.Runner(m))
}
