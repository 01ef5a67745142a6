package jetlog_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/logtest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
)

// Between a session's first and last event something is asked for by its sequence in
// every 4 MB of the log, and nothing beyond them.
func TestWarmAsksForWhatASessionIsSpreadOver(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	log := natstest.LogOn(t, s, 1)
	add := func(session, request string) uint64 {
		return logtest.Add(t, log, session, request, strings.Repeat("x", 1<<20)).Seq
	}
	add("other", "before")
	first := add("s", "1")
	for n := range 20 {
		add("other", string(rune('a'+n)))
	}
	last := add("s", "2")
	add("other", "after")

	nc := natstest.Connect(t, s)
	asked := must.Get(nc.SubscribeSync("$JS.API.STREAM.MSG.GET." + events.StreamName(0)))(t)
	require.NoError(t, nc.Flush())
	require.NoError(t, log.Warm(t.Context(), "s"))
	require.NoError(t, log.Warm(t.Context(), "nobody"))
	require.NoError(t, nc.Publish(asked.Subject, []byte(`{"end":true}`)))
	at := []uint64{first}
	for {
		m := must.Get(asked.NextMsgWithContext(t.Context()))(t)
		var q struct {
			Seq  uint64
			Next string `json:"next_by_subj"`
			End  bool
		}
		require.NoError(t, json.Unmarshal(m.Data, &q))
		if q.End {
			break
		}
		again := q.Seq == at[len(at)-1] // a question that is long without an answer is repeated
		if q.Seq > 0 && q.Next == "" && !again {
			at = append(at, q.Seq)
		}
	}
	at = append(at, last)
	for n := range at[1:] {
		require.Less(t, at[n], at[n+1])
		require.LessOrEqual(t, at[n+1]-at[n], uint64(5), "events of 1 MB")
	}
}
