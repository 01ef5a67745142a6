package openai_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
)

// What a hosted tool shows to servers of others reaches the model's endpoint, and neither a response nor the log.
//
//conformance:o51
func TestSecretsOfHostedToolsAreNotKept(t *testing.T) {
	t.Parallel()
	const tools = `[
		{"type":"mcp","server_label":"shop","server_url":"https://example.com/mcp","authorization":"planted-token",
			"headers":{"X-Key":"planted-header"},"allowed_tools":{"read_only":true}},
		{"type":"code_interpreter","container":{"type":"auto","network_policy":{"type":"allowlist",
			"allowed_domains":["example.com"],"domain_secrets":[{"domain":"example.com","name":"K","value":"planted-v"}]}}},
		{"type":"function","name":"send","parameters":{"type":"object","properties":{"headers":{"type":"string"}}}}]`
	model, s := behind(t, "responses", func([]string) modeltest.Answer { return modeltest.Answer{Text: "Sold."} })
	id := s.begin()
	for _, where := range []string{`"store":false`, `"conversation":"` + id + `"`, `"stream":true`} {
		r := s.do("POST", "/v1/responses", `{"input":"Buy it.","tools":`+tools+`,`+where+`}`)
		require.Equal(t, 200, r.status, r.raw)
		require.NotContains(t, r.raw, "planted")
		require.Contains(t, r.raw, `"read_only":true`)
		require.Contains(t, r.raw, `"properties":{"headers":`)
		var sent struct{ Tools json.RawMessage }
		require.NoError(t, json.Unmarshal(<-model.Bodies, &sent))
		require.Equal(t, 3, strings.Count(string(sent.Tools), "planted"), where)
	}
	kept := 0
	for e, err := range s.log.Session(t.Context(), id, 0, ^uint64(0)) {
		require.NoError(t, err)
		fact, err := json.Marshal(e.Fact)
		require.NoError(t, err)
		require.NotContains(t, string(fact), "planted")
		kept += strings.Count(string(fact), "read_only")
	}
	require.Positive(t, kept, "the log keeps the tools")
}
