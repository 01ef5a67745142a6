package events_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
)

func TestTooDeep(t *testing.T) {
	t.Parallel()
	nested := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	require.False(t, events.TooDeep(nested(events.MaxDepth)))
	require.True(t, events.TooDeep(nested(events.MaxDepth+1)))
	require.False(t, events.TooDeep([]byte(`["`+strings.Repeat("[", 1000)+`"]`)), "brackets of a text")
	require.False(t, events.TooDeep([]byte(`["\"`+strings.Repeat("{", 1000)+`"]`)), "an escaped quote ends no text")
	require.False(t, events.TooDeep([]byte("["+strings.Repeat("{},", 1000)+"{}]")))
}

// What nests too deep states no fact: replay and PostgreSQL could not read it again.
func TestAnEventThatNestsTooDeepIsNoFact(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 600) + strings.Repeat("]", 600)
	for problem, q := range map[string]events.Question{
		"malformed_messages": {QuestionNeutral: "q", QuestionMessages: []byte(`[{"role":"user","content":` + deep +
			`}]`)},
		"malformed_metadata": {QuestionNeutral: "q", Metadata: []byte(`{"channel":` + deep + `}`)},
	} {
		env, err := events.Encode(&events.TurnStarted{TurnID: events.TurnID("s", "r"), SessionID: "s", RequestID: "r",
			Question: q}, time.Now())
		require.NoError(t, err)
		require.Equal(t, problem, events.Decode(env, events.Position{Seq: 1}, time.Now()).Problem)
	}
}
