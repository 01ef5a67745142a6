package audit_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/turnledger/turnledger/projections/audit/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Runner(m)) }
