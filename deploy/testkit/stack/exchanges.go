package stack

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Exchanges returns what a context must show after n turns: the user's and the assistant's messages.
func Exchanges(n int) (out []any) {
	for i := range n {
		out = append(out,
			map[string]any{"role": "user", "content": fmt.Sprint("question ", i)},
			map[string]any{"role": "assistant", "content": fmt.Sprint("answer ", i)})
	}
	return out
}

// RecordExchange records turn i of a session, and requires that the next context has it.
func (p *Process) RecordExchange(t testing.TB, id string, i int) {
	t.Helper()
	p.RecordTurn(t, id, fmt.Sprint("r", i), fmt.Sprint("question ", i), fmt.Sprint("answer ", i))
	require.Equal(t, Exchanges(i+1), p.Context(t, id))
}

// Questions returns the questions of the first n such turns.
func Questions(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint("question ", i))
	}
	return out
}
