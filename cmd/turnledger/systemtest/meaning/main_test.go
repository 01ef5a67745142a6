package meaning_test

import (
	"testing"

	"github.com/turnledger/turnledger/cmd/turnledger/systemtest/stack"
)

func TestMain(m *testing.M) { stack.Main(m) }
