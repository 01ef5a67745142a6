package openai_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
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

// What a model sends with a call, such as Gemini's signature of its thoughts, is shown with it, and the model gets
// it back with it, in a conversation and from a client that keeps the history itself.
func TestWhatAModelSendsWithACallComesBack(t *testing.T) {
	t.Parallel()
	signed := map[string]any{"google": map[string]any{"thought_signature": "sig"}}
	m, s := behind(t, "chat", func(prompt []string) modeltest.Answer {
		if len(prompt) > 1 {
			return modeltest.Answer{Text: "done"}
		}
		return modeltest.Answer{Calls: []modeltest.Call{
			{ID: "c", Name: "f", Arguments: "{}", More: map[string]any{"extra_content": signed}},
		}}
	})
	for _, more := range []string{`,"conversation":"` + s.begin() + `"`, `,"store":false`} {
		first := s.must("POST", "/v1/responses", `{"input":"go"`+tool+more+`}`)
		<-m.Bodies
		call := first["output"].([]any)[0]
		require.Equal(t, signed, call.(map[string]any)["extra_content"])
		input := result("c", "1")
		if strings.Contains(more, "store") {
			input = user("go") + "," + string(must.Get(json.Marshal(call))(t)) + "," + input
		}
		s.must("POST", "/v1/responses", `{"input":[`+input+`]`+tool+more+`}`)
		calls := messagesIn(t, <-m.Bodies)[1].(map[string]any)["tool_calls"].([]any)
		require.Equal(t, signed, calls[0].(map[string]any)["extra_content"], more)
	}
}

// A question that a filter stopped stays out of prompts, also where a client adds an answer of its own to its turn.
func TestAFilteredTurnThatIsExtendedStaysOutOfPrompts(t *testing.T) {
	t.Parallel()
	m, s := behind(t, "chat", func(prompt []string) modeltest.Answer {
		if strings.Contains(prompt[len(prompt)-1], forbidden) {
			return modeltest.Answer{Filtered: true}
		}
		return modeltest.Answer{Text: "4"}
	})
	id := s.begin()
	s.must("POST", "/v1/responses", `{"input":"`+forbidden+`","conversation":"`+id+`"}`)
	<-m.Bodies
	s.post(id, assistant("I can't say."), function("c"))
	s.must("POST", "/v1/responses", `{"input":"2+2?","conversation":"`+id+`"}`)
	require.NotContains(t, string(<-m.Bodies), forbidden)
}
