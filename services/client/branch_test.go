package client_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services/client"
)

func TestBranches(t *testing.T) {
	t.Parallel()
	c := start(t, nil).client(nil)
	ctx := t.Context()
	var turns []string
	for _, r := range []string{"1", "2", "3"} {
		turn, err := c.StartTurn(ctx, client.Start{SessionID: "s", RequestID: r, QuestionNeutral: "q" + r})
		require.NoError(t, err)
		_, err = c.FinalizeTurn(ctx, client.Finalize{SessionID: "s", TurnID: turn.TurnID, AnswerNeutral: "a"})
		require.NoError(t, err)
		turns = append(turns, turn.TurnID)
	}
	made, err := c.Fork(ctx, client.Fork{SessionID: "s", RequestID: "f", TurnID: turns[1]})
	require.NoError(t, err)
	require.Equal(t, events.BranchID("s", "f"), made.SessionID)
	require.Equal(t, &client.ForkedFrom{SessionID: "s", TurnID: turns[1]}, made.ForkedFrom)
	require.False(t, made.Duplicate)
	again, err := c.Fork(ctx, client.Fork{SessionID: "s", RequestID: "f", Branch: "other"})
	require.NoError(t, err)
	require.Equal(t, []any{made.SessionID, true}, []any{again.SessionID, again.Duplicate})
	before, err := c.Fork(ctx, client.Fork{SessionID: "s", RequestID: "g", BeforeTurnID: turns[1], Branch: "before"})
	require.NoError(t, err)
	require.Equal(t, []string{"before", turns[0]}, []string{before.SessionID, before.ForkedFrom.TurnID})
	empty, err := c.Fork(ctx, client.Fork{SessionID: "s", RequestID: "h", BeforeTurnID: turns[0]})
	require.NoError(t, err)
	require.Equal(t, &client.ForkedFrom{SessionID: "s"}, empty.ForkedFrom)
	_, err = c.Fork(ctx, client.Fork{SessionID: "s", RequestID: "i", Branch: "before"})
	require.ErrorIs(t, err, &client.Error{Code: "session_exists"})
	_, err = c.Fork(ctx, client.Fork{SessionID: "s"})
	require.ErrorIs(t, err, &client.Error{Code: "invalid_argument"})

	title := "Branch"
	described, err := c.Describe(ctx, client.Describe{SessionID: made.SessionID, Title: &title})
	require.NoError(t, err)
	require.Equal(t, []any{"Branch", made.ForkedFrom}, []any{described.Title, described.ForkedFrom})
	page, err := c.Turns(ctx, made.SessionID, client.TurnQuery{})
	require.NoError(t, err)
	require.Len(t, page.Turns, 2)
	require.Equal(t, []any{"s", turns[0], true},
		[]any{page.Turns[0].SessionID, page.Turns[0].TurnID, page.Turns[0].Inherited})
	_, err = c.Redact(ctx, client.Redact{SessionID: made.SessionID, TurnID: turns[0]})
	require.ErrorIs(t, err, &client.Error{Code: "turn_inherited"})
	var refused *client.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, &client.Origin{SessionID: "s", TurnID: turns[0]}, refused.Origin)
	require.ErrorContains(t, err, "(session s, turn "+turns[0]+")")
	_, err = c.Sessions(ctx, client.SessionQuery{IdentityID: "ada"})
	require.ErrorIs(t, err, &client.Error{Code: "audit_unavailable"}, "there is no PostgreSQL")
}
