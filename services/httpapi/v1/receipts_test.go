package v1_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	"github.com/turnledger/turnledger/services/history"
	"github.com/turnledger/turnledger/services/read"
)

// filed are receipts by their ids.
type filed map[string]services.Receipt

func (f filed) Receipt(_ context.Context, id string) (services.Receipt, error) {
	r, ok := f[id]
	if !ok {
		return r, services.ErrNoReceipt
	}
	r.ID = id
	return r, nil
}

func (f filed) Receipts(_ context.Context, ask services.ReceiptsAsk) (services.ReceiptPage, error) {
	out := services.ReceiptPage{NextCursor: "0:3"}
	if ask.Cursor == "0:3" {
		out.NextCursor = ""
	}
	for _, id := range slices.Sorted(maps.Keys(f))[:ask.Limit] {
		r, err := f.Receipt(context.Background(), id)
		if err != nil {
			return out, err
		}
		out.Receipts = append(out.Receipts, r)
	}
	return out, nil
}

func TestReceiptsAreListed(t *testing.T) {
	t.Parallel()
	s, _ := guarded(t, ring{}, func(c *config, _ *history.Config, _ *read.Config) {
		list := filed{}
		for i := range 300 {
			list[fmt.Sprintf("%03d", i)] = services.Receipt{SessionID: "s", TurnID: "t"}
		}
		c.Receipts = list
	})
	for query, want := range map[string]int{"": 50, "?limit=3": 3, "?limit=9999": 200} {
		a := s.as("all", "GET", "/v1/receipts"+query, nil)
		require.Equal(t, http.StatusOK, a.status)
		require.Len(t, a.body["receipts"], want)
		require.Equal(t, "0:3", a.body["next_cursor"])
		require.Equal(t, s.as("all", "GET", "/v1/receipts/000", nil).body, a.body["receipts"].([]any)[0])
	}
	require.Nil(t, s.as("all", "GET", "/v1/receipts?cursor=0:3", nil).body["next_cursor"])
}

func TestKeysAreListedWithoutTheirSecrets(t *testing.T) {
	t.Parallel()
	ada := "ada"
	s, _ := guarded(t, ring{}, func(c *config, _ *history.Config, _ *read.Config) {
		c.Keys = func() ([]access.Key, error) {
			return []access.Key{{Text: "SECRET", Prefix: "tl_abc", Name: "ops", Scopes: []string{"admin"},
				IdentityID: &ada, State: "active"}}, nil
		}
	})
	a := s.as("all", "GET", "/v1/keys", nil)
	require.NotContains(t, string(a.raw), "SECRET")
	require.Equal(t, map[string]any{"prefix": "tl_abc", "name": "ops", "scopes": []any{"admin"}, "identity_id": "ada",
		"created_at": "0001-01-01T00:00:00Z", "expires_at": nil, "revoked_at": nil, "state": "active"},
		a.body["keys"].([]any)[0])
}

// A key that is bound to an identity reads the receipts of that identity and of its
// sessions; any other looks like none.
func TestABoundKeyReadsItsOwnReceipts(t *testing.T) {
	t.Parallel()
	s, _ := guarded(t, ring{}, func(c *config, _ *history.Config, _ *read.Config) {
		c.Receipts = filed{
			"session":   {SessionID: "own"},
			"turn":      {SessionID: "own", TurnID: "6f1d1d0e-8a55-5c0e-9d1b-0c7a3d2f4b10"},
			"identity":  {IdentityID: "ada"},
			"foreign":   {SessionID: "foreign"},
			"forged":    {SessionID: "foreign", IdentityID: "ada"},
			"anonymous": {SessionID: "anonymous"},
			"bob":       {IdentityID: "bob"},
		}
	})
	for session, identity := range map[string]string{"own": "ada", "foreign": "bob", "anonymous": ""} {
		require.Equal(t, http.StatusCreated, s.as("all", "POST", "/v1/sessions/"+session+"/turns", `{"request_id":"r","question_neutral":"q"}`).status)
		if identity != "" {
			require.Equal(t, http.StatusOK, s.as("all", "PUT", "/v1/sessions/"+session+"/identity",
				map[string]any{"identity_id": identity}).status)
		}
	}
	for _, id := range []string{"session", "turn", "identity"} {
		require.Equal(t, http.StatusOK, s.as("ada", "GET", "/v1/receipts/"+id, nil).status, id)
	}
	unknown := s.as("ada", "GET", "/v1/receipts/unknown", nil)
	requireProblem(t, unknown, http.StatusNotFound, "not_found")
	for _, id := range []string{"foreign", "forged", "anonymous", "bob"} {
		require.Equal(t, http.StatusOK, s.as("all", "GET", "/v1/receipts/"+id, nil).status, id)
		a := s.as("ada", "GET", "/v1/receipts/"+id, nil)
		requireProblem(t, a, http.StatusNotFound, "not_found")
		require.Equal(t, string(unknown.raw), string(a.raw), id)
	}
}
