package openai_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/openaitest"
)

// Odd bodies, addresses and headers are refused or taken, and never break anything.
//
//conformance:o80
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.begin(user("q"))
	bodies := []string{
		`{"items":[null]}`, `{"items":[[]]}`, `{"items":[{"type":""}]}`,
		`{"items":[{"type":"message","role":"user","content":[]}]}`,
		`{"items":[{"type":"function_call","call_id":"","name":"","arguments":""}]}`,
		`{"items":[{"type":"function_call_output","call_id":"none","output":[]}]}`,
		`{"items":[{"type":"` + strings.Repeat("x", 9000) + `"}]}`, `{"items":[{"type":"x","id":"../../etc"}]}`,
		`{"items":[{"type":"x","id":{"a":1},"call_id":[1],"status":7}]}`,
		`{"items":[{"role":"user","content":"\ud800"}]}`,
		`{"items":[{"type":"item_reference","id":7}]}`, `{"items":{"0":{}}}`,
		`{"items":[` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `]}`,
		`{"items":[{"type":"x"},{"type":"x","id":"x"},{"type":"x","id":"x"}]}`,
		`{"metadata":{"":"x"}}`, `{"metadata":{"\u0000":"x"}}`, `{"metadata":[]}`, "\x00", `"items"`,
		strings.Repeat("9", 99),
	}
	conv := "/v1/conversations/" + id
	for _, path := range []string{"/v1/conversations", conv, conv + "/items"} {
		for _, body := range bodies {
			a := s.do("POST", path, body, openaitest.Unofficial, "1", retry, "-1", "Idempotency-Key", "")
			require.Less(t, a.status, http.StatusInternalServerError, "%s %s: %s", path, body, a.raw)
			require.NotNil(t, a.body, a.raw)
		}
	}
	for _, path := range []string{
		"/v1/conversations/%00", "/v1/conversations/..", "/v1/conversations/" + strings.Repeat("a", 300),
		"/v1/conversations/%ff/items", "/v1/conversations/" + id + "/items/%2e%2e", "/v1/conversations//items",
		"/v1/conversations/" + id + "/items?limit=99999999999999999999", "/v1/models/%00",
	} {
		a := s.do("GET", path, "")
		require.GreaterOrEqual(t, a.status, http.StatusBadRequest, path)
		require.Less(t, a.status, http.StatusInternalServerError, "%s: %s", path, a.raw)
	}
	a := s.do("GET", "/v1/conversations/"+id+"/items?limit=100", "", openaitest.Unofficial, "1")
	require.Equal(t, http.StatusOK, a.status)
}
