package cutfs_test

import (
	"testing"

	"github.com/turnledger/turnledger/deploy/testkit/leaks"
)

// No mount may still be served when its test is over.
func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }
