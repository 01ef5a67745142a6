package history_test

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/natstest"
)

// A fork costs the same however long the session is: two events of less than 1 KB each, with headers and subject.
func TestAForkOfALongSessionIsTwoSmallEvents(t *testing.T) {
	t.Parallel()
	const turns = 5000
	server := natstest.Server(t)
	log := natstest.LogOn(t, server, 1)
	s := run(t, log)
	var all []conversation.Start
	for i := range turns {
		all = append(all, wholeTurn("stem", fmt.Sprint(i)))
	}
	for _, made := range s.StartTurns(t.Context(), all) {
		require.NoError(t, made.Err)
	}
	before := head(t, log)
	require.EqualValues(t, 2*turns, before)
	for i, fork := range []conversation.ForkSession{
		{SessionID: "stem", RequestID: "last"},
		{SessionID: "stem", RequestID: "middle", TurnID: events.TurnID("stem", fmt.Sprint(turns/2))},
		{SessionID: "stem", RequestID: "first", BeforeTurnID: events.TurnID("stem", "1")},
	} {
		_, err := s.ForkSession(t.Context(), fork)
		require.NoError(t, err)
		require.EqualValues(t, before+2*uint64(i+1), head(t, log))
	}
	js, err := jetstream.New(natstest.Connect(t, server))
	require.NoError(t, err)
	stream, err := js.Stream(t.Context(), events.StreamName(0))
	require.NoError(t, err)
	for seq := before + 1; seq <= before+6; seq++ {
		m, err := stream.GetMsg(t.Context(), seq)
		require.NoError(t, err)
		size := len(m.Subject) + len(m.Data)
		for name, values := range m.Header {
			size += len(name) + len(values[0]) + len(": \r\n")
		}
		require.Less(t, size, 1<<10, "%v", m.Header)
	}
}
