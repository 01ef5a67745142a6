package index_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/indextest"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/projections/index"
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
	w.Append(t, &events.TurnCorrected{
		TurnID: events.TurnID("s", "2c"), SessionID: "s", RequestID: "2c", ReplacesTurnID: events.TurnID("s", "2"),
		Question: events.Question{QuestionNeutral: "corrected"}, Answer: events.Answer{AnswerNeutral: "no"},
	}, indextest.Linked("s", "ann"))
	h := w.claim(t, v, "s")
	h.must(t)
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

// resets: a link brings what stands before a reset, which deletes nothing, and not what stands before a silence.
func resets(t *testing.T, w *world) {
	w.Rules.SessionTTL = silence
	v := w.Open(t)
	w.Append(t, indextest.Turn("s", "1", "before the silence", "yes")...)
	pause.For(t.Context(), 3*silence)
	w.Append(t, indextest.Turn("s", "2", "before the reset", "yes")...)
	w.Append(t, &events.SessionReset{SessionID: "s"}, indextest.Linked("s", "ann"))
	w.claim(t, v, "s").must(t)
	require.Nil(t, w.object(t, "s", "1"))
	require.NotNil(t, w.object(t, "s", "2"))
	w.Agree(t, v, "s")
}

// pruned: what is taken out of a turn is a reason to scrub, though the turn stays.
func pruned(t *testing.T, w *world) {
	forgotten := events.Position{Seq: 1 << 40}
	erased := events.Position{}
	v := w.Open(t, func(c *index.Config) {
		c.Erased = func(context.Context, int) (events.Position, error) { return erased, nil }
	})
	turn := events.TurnID("s", "1")
	w.Append(t, indextest.Linked("s", "ann"), indextest.Turn("s", "1", "what is hot", "")[0], &events.TurnFinalized{
		TurnID: turn, SessionID: "s", Answer: events.Answer{AnswerNeutral: "lava", AnswerMessages: []byte(
			`[{"role":"assistant","content":"lava"},{"role":"assistant","content":"ash"}]`,
		)},
	})
	h := w.claim(t, v, "s")
	h.must(t)
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
	erased = forgotten
	awaitScrub(t, scrubs(t, v))
}
