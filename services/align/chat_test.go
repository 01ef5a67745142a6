package align_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/services/align"
)

// What the messages of a chat completion share with a session. This is the table of cases.
func TestChat(t *testing.T) {
	t.Parallel()
	const two, ran = "u q1, a a1 | u q2, a a2", "u q1, c c1, o c1 x, a a1 | u q2, a a2"
	for name, c := range map[string]struct {
		session, input string
		want           align.Shared
	}{
		"whole again":                        {two, "u q1, a a1, u q2, a a2, u q3", align.Shared{Turns: 2, Rest: 4}},
		"white space and line ends":          {"u a\r\nb, a c", "u a\nb , a  c, u q2", align.Shared{Turns: 1, Rest: 2}},
		"an edit":                            {two, "u q1, a a1, u edited", align.Shared{Turns: 1, Rest: 2, Diverges: true}},
		"an edit in the first turn":          {two, "u edited, a a1, u q3", align.Shared{Diverges: true}},
		"another answer":                     {two, "u q1, a other, u q3", align.Shared{Diverges: true}},
		"an answer that ended early":         {two, "u q1, a a, u q2, a a2, u q3", align.Shared{Turns: 2, Rest: 4}},
		"no answer":                          {two, "u q1, u q2, a a2, u q3", align.Shared{Turns: 2, Rest: 3}},
		"without calls and outputs":          {ran, "u q1, a a1, u q2, a a2, u q3", align.Shared{Turns: 2, Rest: 4}},
		"without outputs":                    {ran, "u q1, c c1, a a1, u q2, a a2, u q3", align.Shared{Turns: 2, Rest: 5}},
		"other calls, the same last text":    {ran, "u q1, c c9, o c9 y, a a1, u q2, a a2, u q3", align.Shared{Turns: 2, Rest: 6}},
		"system messages of the session":     {"d s, u q1, a a1", "u q1, a a1, u q2", align.Shared{Turns: 1, Rest: 2}},
		"thoughts of the session":            {"u q1, r hm, a a1", "u q1, a a1, u q2", align.Shared{Turns: 1, Rest: 2}},
		"outputs of the newest turn":         {"u q1, c c1, c c2", "u q1, c c1, c c2, o c1 x, o c2 y", align.Shared{Turns: 1, Rest: 3}},
		"an output of an earlier turn":       {ran, "u q1, c c1, o c1 y", align.Shared{Diverges: true}},
		"ends at a question":                 {two, "u q1, a a1, u q2", align.Shared{Turns: 1, Rest: 2, Diverges: true, Ends: true, At: 1}},
		"ends at an earlier question":        {two, "u q1", align.Shared{Diverges: true, Ends: true}},
		"ends at an output":                  {"u q1, c c1, o c1 x", "u q1, c c1, o c1 x", align.Shared{Diverges: true, Ends: true}},
		"ends at an open question":           {"u q1, a a1 |? u q2", "u q1, a a1, u q2", align.Shared{Turns: 1, Rest: 2, Ends: true, At: 1}},
		"behind an open question":            {"u q1, a a1 |? u q2", "u q1, a a1, u q2, u q3", align.Shared{Turns: 2, Rest: 3}},
		"an answer that is not here":         {"u q1, a a1 |? u q2", "u q1, a a1, u q2, a a2, u q3", align.Shared{Turns: 2, Rest: 3}},
		"in the place of an open question":   {"u q1, a a1 |? u q2", "u q1, a a1, u other", align.Shared{Turns: 1, Rest: 2}},
		"a trimmed front":                    {two, "u q2, a a2, u q3", align.Shared{First: 1, Turns: 2, Rest: 2}},
		"a front that is cut in a turn":      {two, "a a1, u q2, a a2, u q3", align.Shared{First: 1, Turns: 2, Rest: 3}},
		"of two places, that to the newest":  {"u hi, a yo | u q2, a a2 | u hi, a yo", "u hi, a yo, u q3", align.Shared{First: 2, Turns: 3, Rest: 2}},
		"an edit behind a trimmed front":     {two + "| u q3, a a3", "u q2, a a2, u edited", align.Shared{First: 1, Turns: 2, Rest: 2, Diverges: true}},
		"a tombstone":                        {"u q1, a a1 |! | u q3, a a3", "u q1, a a1, u gone, a gone, u q3, a a3, u q4", align.Shared{Turns: 3, Rest: 6}},
		"a tombstone that the client knows":  {"u q1, a a1 |! | u q3, a a3", "u q1, a a1, u q3, a a3, u q4", align.Shared{Turns: 3, Rest: 4}},
		"a tombstone at the end":             {"u q1, a a1 |!", "u q1, a a1, u gone, a gone, u q2", align.Shared{Turns: 2, Rest: 4}},
		"a corrected turn":                   {"u q1, a a1 |! u q2, a right", "u q1, a a1, u q2, a wrong, u q3", align.Shared{Turns: 2, Rest: 4}},
		"a pruned answer":                    {"u q1, a a1 |! u q2, c c1 | u q3, a a3", "u q1, a a1, u q2, a gone, u q3, a a3, u q4", align.Shared{Turns: 3, Rest: 6}},
		"a pruned question":                  {"! a a1 | u q2, a a2", "u gone, a a1, u q2, a a2, u q3", align.Shared{Turns: 2, Rest: 4}},
		"a pruned question at the end":       {"u q1, a a1 |! a a2", "u q1, a a1, u gone, a a2, u q3", align.Shared{Turns: 2, Rest: 4}},
		"nothing of an empty session":        {"", "u q1, a a1, u q2", align.Shared{}},
		"two exchanges alike, then another":  {"u yes, a ok | u yes, a ok", "u yes, a ok, u yes, a ok, u yes", align.Shared{Turns: 2, Rest: 4}},
		"two exchanges alike, the last anew": {"u yes, a ok | u yes, a ok", "u yes, a ok, u yes", align.Shared{Turns: 1, Rest: 2, Diverges: true, Ends: true, At: 1}},
	} {
		turns := session(t, c.session)
		if c.session == "" {
			turns = nil
		}
		got := align.Chat(turns, input(t, c.input))
		got.Gone, got.Cuts = nil, nil
		require.Equal(t, c.want, got, name)
	}
}

// repetitive is a session of many turns alike, and messages that fit each of its places for long and none to the end.
func repetitive(t testing.TB, pairs int) ([]align.Turn, align.Input) {
	turns := session(t, strings.TrimPrefix(strings.Repeat("| u ping, a pong", pairs)+"| u last, a last", "|"))
	return turns, input(t, strings.Repeat("u ping, a pong, ", pairs/2)+"u other")
}

// A turn and a place of the input are read once, however often they are compared: what is read is counted by what it
// allocates, which grows as the session does and not as its square.
func TestChatReadsEachTurnOnce(t *testing.T) { //nolint:paralleltest // it counts allocations
	allocations := func(pairs int) float64 {
		turns, in := repetitive(t, pairs)
		return testing.AllocsPerRun(1, func() { align.Chat(turns, in) })
	}
	require.Less(t, allocations(200), 3*allocations(100))
}

func BenchmarkChatOfManyTurnsAlike(b *testing.B) {
	turns, in := repetitive(b, 1000)
	for b.Loop() {
		align.Chat(turns, in)
	}
}
