package main

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Operators find the answer of a closed front on the page that lists why a write is 503.
func TestTheAnswerOfAClosedFrontIsExplained(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	closed.ServeHTTP(w, httptest.NewRequest("POST", "/v1/sessions/s/turns", strings.NewReader("{}")))
	require.Equal(t, 503, w.Code)
	var told struct{ Code, Detail string }
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &told))
	page, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	begins, _, _ := strings.Cut(told.Detail, ":")
	require.Contains(t, string(page), "| `"+told.Code+"` | a backup is being restored; "+begins+" |")
}
