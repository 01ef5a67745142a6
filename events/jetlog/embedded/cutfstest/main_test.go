package cutfstest_test

import (
	"testing"

	"go.uber.org/goleak"
)

// No mount may still be served when its test is over.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
