package recent_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/projections/recent"
)

// TestShortSessionsArePackedToo: nothing repeats in a session of one short turn, but its letters are not equally
// frequent, so that it is packed to less than its texts, with all that belongs to it.
func TestShortSessionsArePackedToo(t *testing.T) {
	t.Parallel()
	draw := rand.New(rand.NewPCG(1, 2))
	said := func(length int) string {
		text := make([]byte, length)
		for i := range text {
			if text[i] = byte('a' + draw.IntN(26)); draw.IntN(6) == 0 {
				text[i] = ' '
			}
		}
		return string(text)
	}
	at := func() time.Time { return time.Unix(draw.Int64N(1<<31), draw.Int64N(1e9)).UTC() }
	packer := recent.NewPacker()
	for range 100 {
		state := session.New("s", session.Rules{})
		state.Applied = 8
		state.Adopt(session.Head{CreatedAt: at(), LastActive: at(), Counts: session.Counts{Finalized: 1}})
		turn := &session.Turn{
			ID: events.TurnID("s", "r"), RequestID: "r", Status: session.Finalized, Place: 7, Started: 7, Final: 8,
			CreatedAt: at(), FinalizedAt: at(), Question: &events.Question{QuestionNeutral: said(120)},
			Answer: &events.Answer{AnswerNeutral: said(600)},
		}
		state.Turns = []*session.Turn{turn}
		packed := packer.Pack(recent.NewHeld(state))
		require.LessOrEqual(t, len(packed), 720*3/4+100)
		got := must.Get(must.Get(packer.Unpack(packed))(t).State("s", session.Rules{}, recent.AllTurns))(t)
		require.Equal(t, state.Head(), got.Head())
		require.Equal(t, recent.Record(turn), recent.Record(got.Turns[0]))
	}
}
