package v1_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	v1 "github.com/turnledger/turnledger/services/httpapi/v1"
)

// A process that lacks the role of a call says which role answers it, and one that nobody answers is none.
func TestACallOfAnotherRoleNamesIt(t *testing.T) {
	t.Parallel()
	bare := openAPI(v1.Config{})
	for call, says := range map[[2]string]string{
		{"POST", "/v1/retention"}:            "has not the role eraser",
		{"POST", "/v1/sessions/s/turns"}:     "has not the role api",
		{"DELETE", "/v1/identities/i"}:       "has not the role api",
		{"GET", "/v1/sessions/s/turns"}:      "has not the role context",
		{"HEAD", "/v1/sessions/s/history"}:   "has not the role context",
		{"GET", "/v1/events"}:                "has not the role context",
		{"POST", "/v1/threads/new/messages"}: "has not the role chat",
		{"POST", "/v1/nothing"}:              "there is no such call",
		{"PATCH", "/v1/retention"}:           "there is no such call",
	} {
		w := httptest.NewRecorder()
		bare.ServeHTTP(w, httptest.NewRequest(call[0], "http://127.0.0.1"+call[1], nil))
		require.Equal(t, http.StatusNotFound, w.Code, call)
		var problem struct{ Code, Detail string }
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &problem))
		require.Equal(t, "not_found", problem.Code, call)
		require.Contains(t, problem.Detail, says, call)
	}
	require.NotContains(t, routes(bare), "POST /v1/retention")
}
