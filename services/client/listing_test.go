package client_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/client"
	"github.com/turnledger/turnledger/services/eraser"
)

// What operators list: receipts page by page, each as it is by itself, and keys with their times.
func TestReceiptsAndKeysAreListed(t *testing.T) {
	t.Parallel()
	ctx, log, ada := t.Context(), natstest.Log(t, 1), "ada"
	begun := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	revoked := begun.Add(time.Hour)
	c := startOn(t, log, services.Ports{
		Receipts: eraser.NewReceipts(eraser.On(log), must.Get(log.Notes(ctx))(t), nil),
		Keys: func() ([]access.Key, error) {
			return []access.Key{
				{Prefix: "tl_a", Name: "ops", Scopes: []string{"admin"}, CreatedAt: begun, State: "active"},
				{Prefix: "tl_b", Name: "old", Scopes: []string{"context:read"}, IdentityID: &ada, CreatedAt: begun,
					RevokedAt: &revoked, State: "revoked"},
			}, nil
		},
	}, nil).client(nil)
	var want []string
	for n := range 5 {
		session := fmt.Sprint("s", n)
		turn := must.Get(c.StartTurn(ctx, client.Start{SessionID: session, RequestID: "r", QuestionNeutral: "q"}))(t)
		gone := must.Get(c.Redact(ctx, client.Redact{SessionID: session, TurnID: turn.TurnID}))(t)
		want = append(want, gone.Position)
	}
	slices.Reverse(want)
	for _, limit := range []int{0, 2} {
		var got []string
		for page := (client.ReceiptPage{}); len(got) == 0 || page.NextCursor != ""; {
			page = must.Get(c.Receipts(ctx, limit, page.NextCursor))(t)
			require.True(t, limit == 0 || len(page.Receipts) <= limit)
			for _, r := range page.Receipts {
				require.Equal(t, must.Get(c.Receipt(ctx, r.ReceiptID))(t), r)
				got = append(got, r.ReceiptID)
			}
			require.LessOrEqual(t, len(got), len(want), limit)
		}
		require.Equal(t, want, got, limit)
	}
	require.Equal(t, []client.Key{
		{Prefix: "tl_a", Name: "ops", Scopes: []string{"admin"}, CreatedAt: begun, State: "active"},
		{Prefix: "tl_b", Name: "old", Scopes: []string{"context:read"}, IdentityID: "ada", CreatedAt: begun,
			RevokedAt: revoked, State: "revoked"},
	}, must.Get(c.Keys(ctx))(t))
}
