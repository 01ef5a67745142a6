package deployment_test

import (
	"testing"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

func TestMain(m *testing.M) { stack.Main(m) }
