package audit_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/turnledger/turnledger/projections/audit/pgtest"
	"github.com/turnledger/turnledger/projections/viewtest"
)

func TestMain(m *testing.M) {
	viewtest.AtMost(1000) // each history of a property takes PostgreSQL about 0.1 s
	goleak.VerifyTestMain(pgtest.Runner(m))
}
