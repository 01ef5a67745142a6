package cutfstest_test

import (
	"testing"

	"github.com/turnledger/turnledger/events/natstest/leaks"
)

// No mount may still be served when its test is over.
func TestMain(m *testing.M) { leaks.VerifyTestMain(m) }
