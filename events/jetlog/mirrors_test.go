package jetlog_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/events/natstest"
)

// The server lets mirrors answer direct reads. This one holds one session only, as one
// that is behind lacks the last events.
func TestNoReadBelievesAMirror(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	before := natstest.LogOn(t, s, 1)
	add := func(f events.Fact) jetlog.Ack {
		ack, err := before.Append(t.Context(), jetlog.Append{Facts: []events.Fact{f}})
		require.NoError(t, err)
		require.NoError(t, before.Durable(t.Context(), ack.Position))
		return ack
	}
	add(fact("copied", "r1"))
	nc := natstest.Connect(t, s)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	copied := events.SessionSubject("copied")
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "COPY", Mirror: &jetstream.StreamSource{Name: events.StreamName(0), FilterSubject: copied},
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		m, err := nc.Request("$JS.API.DIRECT.GET."+events.StreamName(0), []byte(`{"last_by_subj":"`+copied+`"}`), time.Second)
		return err == nil && m.Header.Get(jetstream.StreamHeader) == "COPY"
	}, 10*time.Second, time.Millisecond, "the mirror answers")
	last := add(fact("other", "r1")).Position

	since := natstest.LogOn(t, s, 1)
	for range 50 {
		require.Len(t, ids(t, since, "other"), 1)
		require.Len(t, ids(t, since, "copied"), 1)
		head, err := since.Head(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, last, head)
		seq, err := since.SeqAt(t.Context(), 0, time.Now().Add(-time.Hour))
		require.NoError(t, err)
		require.Zero(t, seq)
		require.Len(t, ids(t, before, "copied"), 1)
	}
	require.Len(t, ids(t, before, "other"), 1, "one that was open before has learned of it")
}
