package systemtest_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/services/client"
)

func TestForkAndShowSessions(t *testing.T) {
	t.Parallel()
	p := stack.Shared(t)
	first := p.RecordTurn(t, "stem", "1", "one", "1")
	second := p.RecordTurn(t, "stem", "2", "two", "2")
	p.RecordTurn(t, "stem", "3", "three", "3")

	made := p.Done(t, "sessions", "fork", "stem", "--turn", second, "--branch", "branch", "--request-id", "f")
	require.Contains(t, made, "session      branch\n")
	require.Contains(t, made, "forked from  stem "+second+"\n")
	require.Equal(t, "Q: one\nA: 1\nQ: two\nA: 2\n", p.Done(t, "history", "branch"))
	var again client.Session
	printed := p.Done(t, "sessions", "fork", "stem", "--request-id", "f", "--json")
	require.NoError(t, json.Unmarshal([]byte(printed), &again))
	require.Equal(t, []any{"branch", true}, []any{again.SessionID, again.Duplicate})
	require.Contains(t, p.Done(t, "sessions", "fork", "stem", "--before", second, "--branch", "leaf"), "stem "+first)
	require.Contains(t, p.Done(t, "sessions", "fork", "stem", "--before", first, "--branch", "bare"), "stem -\n")
	require.Contains(t, p.Done(t, "sessions", "fork", "branch", "--branch", "twig"), "forked from  stem "+second,
		"a fork at an inherited turn is one of the turn's own session")
	shown := p.Done(t, "sessions", "show", "twig")
	require.Contains(t, shown, "forked from  stem "+second+"\n")
	require.Contains(t, shown, "turns        0, 0 without an answer\n")
	require.NotContains(t, p.Done(t, "sessions", "show", "stem"), "forked from")
	require.Contains(t, p.Done(t, "sessions", "show", "nobody"), "not found")

	said := p.Fails(t, "sessions", "fork", "stem", "--branch", "leaf")
	require.Contains(t, said, "session_exists")
}
