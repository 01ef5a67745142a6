package openai_test

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/services/model/endpoint"
	chatopenai "github.com/turnledger/turnledger/services/model/openai"
)

// Whoever keeps the history himself gets what the model wants to see again with its calls, and the pages that it
// cites: whole, in chunks, and when the call comes again.
func TestACompletionBringsWhatItsModelWantsToSeeAgain(t *testing.T) {
	t.Parallel()
	const signed = `{"google":{"thought_signature":"sig"}}`
	const cited = `[{"type":"url_citation","url_citation":{"url":"https://a.test","title":"A","start_index":0,"end_index":3}}]`
	for stream, want := range map[string]string{"members-of-calls": signed, "annotations": cited} {
		for _, session := range []string{"", "s"} {
			for _, streamed := range []string{"", `,"stream":true`} {
				server := &dialect{raw: must.Get(os.ReadFile("../../model/openai/testdata/" + stream + ".sse"))(t)}
				at := httptest.NewServer(server)
				t.Cleanup(at.Close)
				s := start(t, answeredBy(chatopenai.New(endpoint.Config{URL: at.URL, Name: "m"})))
				header := []string{"Idempotency-Key", "k"}
				if session != "" {
					header = append(header, "X-Turnledger-Session", session)
				}
				for range len(header) / 2 { // in a session it comes again
					body := `{"messages":[` + user("q") + `]` + streamed + `}`
					var message map[string]any
					if streamed != "" {
						chunks, _ := s.chunks(body, header...)
						message = carried(chunks)
					} else {
						choices, _ := s.must("POST", completions, body, header...)["choices"].([]any)
						message, _ = choices[0].(map[string]any)["message"].(map[string]any)
					}
					got := message["annotations"]
					if calls, _ := message["tool_calls"].([]any); len(calls) > 0 {
						got = calls[0].(map[string]any)["extra_content"]
					}
					require.JSONEq(t, want, string(must.Get(json.Marshal(got))(t)), stream+session+streamed)
				}
			}
		}
	}
}

// carried returns the deltas of chunks as one message, where each member comes once.
func carried(chunks []map[string]any) map[string]any {
	message := map[string]any{}
	for _, chunk := range chunks {
		choices, _ := chunk["choices"].([]any)
		for _, choice := range choices {
			delta, _ := choice.(map[string]any)["delta"].(map[string]any)
			for name, value := range delta {
				message[name] = value
			}
		}
	}
	return message
}
