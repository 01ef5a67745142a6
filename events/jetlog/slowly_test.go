package jetlog_test

import (
	"fmt"
	"iter"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
)

// TestReadSlowlyASessionIsTheSame reads sessions whole, in part, and where there is none, also with events that no one
// can read directly.
func TestReadSlowlyASessionIsTheSame(t *testing.T) {
	t.Parallel()
	server := natstest.Server(t)
	log := natstest.LogOn(t, server, 1)
	nc := natstest.Connect(t, server)
	for i := range 90 {
		logtest.Add(t, log, fmt.Sprint("s", i%3), fmt.Sprint(i), "x")
	}
	for _, m := range logtest.ForeignMessages() {
		m.Subject = events.SessionSubject("s0")
		must.Get(nc.RequestMsg(m, 5*time.Second))(t)
	}
	last := logtest.Add(t, log, "s0", "last", "x")
	all := func(in iter.Seq2[events.Recorded, error]) (out []events.Recorded) {
		for e, err := range in {
			require.NoError(t, err)
			out = append(out, e)
		}
		return out
	}
	for _, session := range []string{"s0", "s1", "none"} {
		for _, upTo := range []uint64{0, 1, 2, 50, last.Seq - 1, last.Seq, math.MaxUint64} {
			for _, after := range []uint64{0, 1, 40, last.Seq} {
				want := all(log.Session(t.Context(), session, after, upTo))
				require.Equal(t, want, all(jetlog.Slowly{Log: log}.Session(t.Context(), session, after, upTo)),
					"%s after %d up to %d", session, after, upTo)
			}
		}
	}
	require.Len(t, all(jetlog.Slowly{Log: log}.Session(t.Context(), "s1", 0, math.MaxUint64)), 30)

	asked := must.Get(nc.SubscribeSync("$JS.API.DIRECT.GET.>"))(t)
	require.NoError(t, nc.Flush())
	require.Len(t, all(jetlog.Slowly{Log: log}.Session(t.Context(), "s1", 0, 60)), 20)
	for range 21 { // and once for what lies behind
		m := must.Get(asked.NextMsg(5 * time.Second))(t)
		require.NotContains(t, string(m.Data), "batch", "no more than one event is asked for")
	}
}
