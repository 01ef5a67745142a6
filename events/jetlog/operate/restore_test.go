package operate_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/jetlog/operate"
	"github.com/turnledger/turnledger/events/natstest"
)

// A node of a cluster hears of the address that a part of a copy goes to a moment after it
// was made on another.
func TestAPartThatReachedNobodyIsSentAgain(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	nc, receiver := natstest.Connect(t, s), natstest.Connect(t, s)
	given := make(chan error, 1)
	go func() { given <- operate.Send(t.Context(), nc, "restore.here", []byte("part")) }()
	require.Eventually(t, func() bool { return nc.Stats().OutMsgs > 1 }, 10*time.Second, time.Millisecond)
	taken, err := receiver.Subscribe("restore.here", func(m *nats.Msg) { _ = m.Respond(nil) })
	require.NoError(t, err)
	require.NoError(t, <-given)
	n, err := taken.Delivered()
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}
