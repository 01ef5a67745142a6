package conversation_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
)

// A question does not grow for ever, and an event does not either.
func TestRunsAreBounded(t *testing.T) {
	t.Parallel()
	a := newAdds()
	var lines []string
	for n := range 100 {
		lines = append(lines, fmt.Sprint("U ", n))
	}
	a.add(t, lines...)
	require.Len(t, a.state.Turns, 2)
	require.Len(t, strings.Split(a.shown()[0], "+"), 64)

	long := strings.Repeat("x", 300<<10)
	d := a.add(t, "A "+long+"1", "A "+long+"2", "A "+long+"3")
	require.Len(t, d.Facts, 3, "one that finalizes, and two that extend")
	require.Equal(t, []int{0, 1, 2}, d.Bases)
}

// What asks a model is one question, however long: a branch behind its answer shares no question without one. Only the
// fact that begins it and the last one repeat its text.
func TestWhatAsksAModelIsOneQuestion(t *testing.T) {
	t.Parallel()
	a := newAdds()
	var lines []string
	for n := range 64 {
		lines = append(lines, fmt.Sprint("U ", n))
	}
	a.add(t, lines...)
	long := strings.Repeat("x", 300<<10)
	a.settings = json.RawMessage(`{"model":"m"}`)
	d := a.add(t, "U "+long+"1", "U "+long+"2", "S "+long+"3", "U last")
	require.Len(t, a.state.Turns, 1)
	require.Len(t, strings.Split(a.shown()[0], "+"), 68)
	question := a.state.Turns[0].Question.QuestionNeutral
	require.Equal(t, 66, strings.Count(question, "\n\n"), "a system's message is no text of it")
	require.True(t, strings.HasSuffix(question, "2\n\nlast"))
	for i, f := range d.Facts {
		x := f.(*events.TurnExtended)
		require.Equal(t, i == len(d.Facts)-1, x.QuestionNeutral != "", i)
		require.Equal(t, i == len(d.Facts)-1, x.Settings != nil, i)
	}
	require.Len(t, d.Facts, 3)
	a.settings = nil
	a.add(t, "U next")
	require.Len(t, a.state.Turns, 2, "a model is asked about the turn before")
}
