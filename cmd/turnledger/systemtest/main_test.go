// Package systemtest_test runs Turnledger as its users do: processes of one binary that are called over HTTP and on the
// command line, with real NATS, PostgreSQL and Redis. The first word of a file's name is its subject. What needs a
// browser, a cluster, a Weaviate or other people's deployment tools is in deploy/e2e.
package systemtest_test

import (
	"testing"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

func TestMain(m *testing.M) { stack.Main(m) }
