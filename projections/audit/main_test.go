package audit_test

import (
	"testing"

	"github.com/turnledger/turnledger/deploy/testkit/leaks"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/viewtest"
)

func TestMain(m *testing.M) {
	viewtest.Draws(100, 1000) // each history of a property takes PostgreSQL about 0.1 s
	leaks.VerifyTestMain(pg.Runner(m))
}
