package index_test

import (
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/indextest"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/pause"
)

// silence is how long a session of these tests may be silent.
const silence = 30 * time.Millisecond

// silences: a link brings the turns since the last silence, a kind takes silences back and brings the rest, and a
// replaced turn comes with neither.
func silences(t *testing.T, w *world) {
	w.Rules.SessionTTL = silence
	v := w.Open(t)
	w.Append(t, indextest.Turn("s", "1", "before the silence", "yes")...)
	pause.For(t.Context(), 3*silence)
	w.Append(t, indextest.Turn("s", "2", "after the silence", "yes")...)
	w.Append(t, corrected("2c", "2", "corrected", "no"), indextest.Linked("s", "ann"))
	h := w.claim(t, v, "s").must(t)
	require.Nil(t, w.object(t, "s", "2"), "replaced")
	before := w.object(t, "s", "1") != nil
	w.Agree(t, v, "s")
	w.Append(t, &events.SessionDescribed{
		SessionID: "s", RequestID: "d", After: events.Position{Partition: h.partition}, Kind: events.KindConversation,
	})
	h.must(t)
	require.False(t, before)
	require.NotNil(t, w.object(t, "s", "1"), "no silence counts in a session of a kind")
	require.Nil(t, w.object(t, "s", "2"))
	w.Agree(t, v, "s")
}

// pruned: what is taken out of a turn is a reason to scrub, though the turn stays.
func pruned(t *testing.T, w *world) {
	var forgotten atomic.Uint64
	v := w.Open(t, erasedUpTo(&forgotten))
	turn := events.TurnID("s", "1")
	w.Append(t, indextest.Linked("s", "ann"), indextest.Turn("s", "1", "what is hot", "")[0], &events.TurnFinalized{
		TurnID: turn, SessionID: "s", Answer: events.Answer{AnswerNeutral: "lava", AnswerMessages: []byte(
			`[{"role":"assistant","content":"lava"},{"role":"assistant","content":"ash"}]`,
		)},
	})
	h := w.claim(t, v, "s").must(t)
	s := natstest.Fold(t, w.Log, "s", w.Rules)
	var brought []events.Recorded
	for e, err := range w.Log.Session(t.Context(), "s", 0, 1<<40) {
		require.NoError(t, err)
		if e.Type == events.TypeTurnStarted || e.Type == events.TypeTurnFinalized {
			brought = append(brought, e)
		}
	}
	n := 0
	prune := conversation.Prune{SessionID: "s", TurnID: turn, PruneID: "p", Partition: h.partition}
	prune.Keep = func(m conversation.Message) json.RawMessage {
		if n++; n == 3 { // the question, lava, ash
			return nil
		}
		return m.Raw
	}
	facts := s.DecidePrune(prune, s.Turn(turn), conversation.Messages(s.Turn(turn), brought)).Facts
	require.NotEmpty(t, facts)
	w.Append(t, facts...)
	h.must(t)
	require.NotNil(t, w.object(t, "s", "1"))
	w.Agree(t, v, "s")
	forgotten.Store(1 << 40)
	<-scrubs(t, v)
}
