package index_test

import (
	"testing"

	"github.com/turnledger/turnledger/deploy/testkit/leaks"
)

func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }
