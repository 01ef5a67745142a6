package operate_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events/jetlog/operate"
)

// One node of a cluster makes the address to which the parts of a copy are sent. The other nodes learn of it a moment
// later.
func TestAPartThatReachedNobodyIsSentAgain(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	nc, receiver := natstest.Connect(t, s), natstest.Connect(t, s)
	given := make(chan error, 1)
	go func() { given <- operate.Send(t.Context(), nc, "restore.here", []byte("part")) }()
	hang.Until(t, func() bool { return nc.Stats().OutMsgs > 1 })
	taken := must.Get(receiver.Subscribe("restore.here", func(m *nats.Msg) { _ = m.Respond(nil) }))(t)
	require.NoError(t, <-given)
	require.EqualValues(t, 1, must.Get(taken.Delivered())(t))
}
