package openai_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/deploy/testkit/openaitest"
)

// fifty has fifty tokens by the estimate of the tests: a quarter of the bytes. A message costs four more.
func fifty(word string) string { return word + strings.Repeat(".", 200-len(word)) }

// longSession makes a conversation of three turns of 108 tokens each, and a response behind the same three.
func longSession(s *stack) (conversation, response string) {
	conversation = s.begin()
	for n := range 3 {
		s.post(conversation, user(fifty(fmt.Sprint("question ", n))), assistant(fifty(fmt.Sprint("answer ", n))))
		body := fmt.Sprintf(`{"input":%q,"truncation":"auto"`, fifty(fmt.Sprint("question ", n)))
		if response != "" {
			body += `,"previous_response_id":"` + response + `"`
		}
		response = s.must("POST", "/v1/responses", body+"}")["id"].(string)
	}
	return conversation, response
}

func beginnings(prompt []string) (out []string) {
	for _, line := range prompt {
		out = append(out, strings.TrimRight(line, "."))
	}
	return out
}

// A history that is longer than the model's context loses its oldest turns where the request says so, and is refused
// where it does not: then nothing is recorded.
//
//conformance:o58 o66
func TestAHistoryThatIsTooLong(t *testing.T) {
	t.Parallel()
	asked := 0
	model, m := scripted(t, func([]string) modeltest.Answer {
		asked++
		return modeltest.Answer{Text: fifty(fmt.Sprint("answer ", asked-1))}
	})
	s := start(t, answeredWithin(200, m))
	c := s.client()
	conversation, response := longSession(s)
	for range 3 {
		<-model.Asked
	}
	left := []string{"user: question 2", "assistant: answer 2", "user: now"}
	for name, p := range map[string]responses.ResponseNewParams{
		"a conversation": {Conversation: responses.ResponseNewParamsConversationUnion{
			OfString: sdk.String(conversation)}},
		"a response": {PreviousResponseID: sdk.String(response)},
		"not stored": {PreviousResponseID: sdk.String(response), Store: sdk.Bool(false)},
	} {
		p.Model, p.Input = "m", asks("now")
		for _, truncation := range []responses.ResponseNewParamsTruncation{"", "disabled"} {
			p.Truncation = truncation
			_, err := c.Responses.New(t.Context(), p)
			requireTooLong(t, err, name)
			stream := c.Responses.NewStreaming(t.Context(), p)
			require.False(t, stream.Next(), "a stream does not begin")
			requireTooLong(t, stream.Err(), name)
		}
		require.Len(t, s.list(conversation, 100), 6, "what is refused leaves nothing")
		p.Truncation, p.Store = "auto", sdk.Bool(false)
		_, err := c.Responses.New(t.Context(), p)
		require.NoError(t, err, name)
		require.Equal(t, left, beginnings(<-model.Asked), name)
		p.Store = sdk.Bool(true)
		_, err = c.Responses.New(t.Context(), p)
		require.NoError(t, err, name)
		require.Equal(t, left, beginnings(<-model.Asked), name)
		if name == "a conversation" {
			conversation, _ = longSession(s)
			for range 3 {
				<-model.Asked
			}
		}
	}
	// Where the input leaves no room, the history goes as a whole.
	for _, stored := range []bool{false, true} {
		_, err := c.Responses.New(t.Context(), responses.ResponseNewParams{
			Model: "m", Input: asks("now" + strings.Repeat(".", 600)), Store: sdk.Bool(stored),
			PreviousResponseID: sdk.String(response), Truncation: "auto",
		})
		require.NoError(t, err)
		require.Equal(t, []string{"user: now"}, beginnings(<-model.Asked))
	}
	require.Empty(t, model.Asked)
}

func requireTooLong(t *testing.T, err error, name string) {
	t.Helper()
	var e *sdk.Error
	require.True(t, errors.As(err, &e), "%s: %v", name, err)
	require.Equal(t, http.StatusBadRequest, e.StatusCode)
	require.Equal(t, "context_length_exceeded", e.Code)
	require.Equal(t, "input", e.Param)
	require.Equal(t, "invalid_request_error", e.Type)
}

// What belongs to a request counts: its instructions, its tools, and the answer that it has room for. An input that is
// too long by itself is refused, also where turns may go.
//
//conformance:o6 o58
func TestWhatCountsAsThePrompt(t *testing.T) {
	t.Parallel()
	_, m := scripted(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "yes"} })
	s := start(t, answeredWithin(100, m))
	fits := `{"input":"` + fifty("a") + `"`
	s.must("POST", "/v1/responses", fits+`}`)
	for _, more := range []string{
		`,"instructions":"` + fifty("b") + `"`, `,"max_output_tokens":60`,
		`,"tools":[{"type":"function","name":"f","description":"` + fifty("c") + `","parameters":{"type":"object"}}]`,
	} {
		for _, body := range []string{fits + more + `}`, fits + more + `,"truncation":"auto"}`} {
			a := s.do("POST", "/v1/responses", body)
			require.Equal(t, http.StatusBadRequest, a.status, a.raw)
			require.Equal(t, "context_length_exceeded", a.body["error"].(map[string]any)["code"])
		}
	}
	// An image is not counted as the text that carries it.
	image := `{"type":"input_image","image_url":"` + picture + `","detail":"low"}`
	s.must("POST", "/v1/responses", `{"input":[{"role":"user","content":[`+image+`]}]}`)
	n := s.must("POST", "/v1/responses/input_tokens", `{"input":"`+strings.Repeat("x", 4000)+`"}`)["input_tokens"]
	require.InDelta(t, 1004, n, 0, "to count is not refused")
}

// Where the size of the model's context is not set, the endpoint may refuse the prompt: the client is told so in the
// same words.
//
//conformance:o58
func TestAnEndpointThatRefusesALongPrompt(t *testing.T) {
	t.Parallel()
	// The endpoint of the tests repeats the last message in its error.
	_, m := scripted(t, func([]string) modeltest.Answer { return modeltest.Answer{Status: http.StatusBadRequest} })
	s := start(t, answeredBy(m))
	body := `"input":"the maximum context length"`
	for _, more := range []string{"", `,"store":false`} {
		a := s.do("POST", "/v1/responses", `{`+body+more+`}`)
		require.Equal(t, http.StatusBadRequest, a.status, a.raw)
		require.Equal(t, "context_length_exceeded", a.body["error"].(map[string]any)["code"])
		raw := s.do("POST", "/v1/responses", `{"stream":true,`+body+more+`}`).raw
		require.Contains(t, raw, "event: response.failed")
		require.Contains(t, raw, `"code":"invalid_prompt"`, "the closest code of the official document")
	}
}

// The name of a model that a request brings is not refused, whatever it is; the response names the one that is
// configured, from its first event on. Without an answer a response has no usage.
//
//conformance:o61
func TestModelAndUsage(t *testing.T) {
	t.Parallel()
	_, m := scripted(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "yes"} })
	s := start(t, answeredBy(m))
	for _, name := range []string{`,"model":"gpt-5.5"`, `,"model":"m"`, ``} {
		r := s.must("POST", "/v1/responses", `{"input":"a"`+name+`}`)
		require.Equal(t, "m", r["model"], name)
		require.NotNil(t, r["usage"])
		require.Equal(t, r, s.must("GET", "/v1/responses/"+r["id"].(string), ""))
	}
	raw := s.do("POST", "/v1/responses", `{"input":"a","stream":true}`, openaitest.Unofficial, "").raw
	for line := range strings.Lines(raw) {
		data, is := strings.CutPrefix(line, "data: ")
		if !is {
			continue
		}
		var e struct {
			Type     string
			Response map[string]any
		}
		require.NoError(t, json.Unmarshal([]byte(data), &e))
		switch e.Type {
		case "response.created", "response.in_progress":
			require.Contains(t, e.Response, "usage")
			require.Nil(t, e.Response["usage"])
			require.Equal(t, "m", e.Response["model"], "the one that is asked")
		case "response.completed":
			require.NotNil(t, e.Response["usage"])
		}
	}
}
