package jetlog_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnledger/turnledger/deploy/testkit/leaks"
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "4") // they wait more than they compute
	// nats-server 2.15.2 leaves these behind when it drops a half-written atomic batch
	// at its recovery (jetstream.go: SKIP without stopping the staged store).
	leaks.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*msgBlock).flushLoop"),
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"))
}
