package v1_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/history"
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

// A key that is bound to an identity reads the receipts of that identity and of its
// sessions; any other looks like none.
func TestABoundKeyReadsItsOwnReceipts(t *testing.T) {
	t.Parallel()
	s, _ := guarded(t, ring{}, func(c *config, _ *history.Config, _ *contextbuilder.ReaderConfig) {
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
