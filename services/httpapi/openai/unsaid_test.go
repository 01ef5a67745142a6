package openai_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
)

// unsaid are items that a chat has no form for.
var unsaid = []string{
	`{"type":"new_thing","x":1}`, `{"type":"reasoning","summary":[]}`, `{"type":"web_search_call","status":"completed"}`,
	`{"role":"user","content":[]}`, `{"type":"mcp_approval_response","approval_request_id":"a","approve":true}`,
	`{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","image_url":"data:image/png;base64,aGk="}}`,
}

// An input of which a model behind a chat endpoint would be sent nothing is refused, and nothing is recorded: such an
// endpoint refuses a prompt without messages. One that speaks Responses gets the items as they came.
//
//conformance:o53
func TestAnInputThatAChatHasNoWordsForIsRefused(t *testing.T) {
	t.Parallel()
	for _, vendor := range []string{"chat", "anthropic", "responses"} {
		t.Run(vendor, func(t *testing.T) {
			t.Parallel()
			m, s := behind(t, vendor, func([]string) modeltest.Answer { return modeltest.Answer{Text: "hm"} })
			id, head := s.begin(), s.head()
			for _, items := range append(unsaid, strings.Join(unsaid, ",")) {
				for _, more := range []string{
					``, `,"store":false`, `,"stream":true`, `,"conversation":"` + id + `"`,
					`,"store":false,"stream":true,"conversation":"` + id + `"`,
				} {
					a := s.do("POST", "/v1/responses", `{"input":[`+items+`]`+more+`}`)
					what := items + more + ": " + a.raw
					if vendor == "responses" {
						require.NotEqual(t, http.StatusBadRequest, a.status, what)
						continue
					}
					require.Equal(t, http.StatusBadRequest, a.status, what)
					require.Equal(t, "input", a.body["error"].(map[string]any)["param"], what)
				}
			}
			if vendor != "responses" {
				require.Equal(t, head, s.head(), "what is refused leaves nothing")
				require.Empty(t, m.Bodies, "no model is asked")
				s.must("POST", "/v1/responses", `{"input":[`+unsaid[0]+`,`+user("a")+`]}`)
			}
		})
	}
}
