package openai_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
)

// A client that puts the items of a stream together piece by piece, as openai's own does, needs each part before its
// pieces.
func TestReasoningComesInAPartOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, vendor := range []string{"chat", "anthropic"} {
		_, s := behind(t, vendor, func([]string) modeltest.Answer {
			return modeltest.Answer{Thoughts: "Is it so?", Text: "It is."}
		})
		for _, store := range []string{"true", "false"} {
			stream := eventsOf(t, s.do("POST", "/v1/responses", `{"input":"q","stream":true,"store":`+store+`}`).raw)
			var content []map[string]any
			for _, e := range stream {
				if e["output_index"] != 0.0 {
					continue
				}
				part, _ := e["part"].(map[string]any)
				switch e["type"] {
				case "response.content_part.added":
					require.EqualValues(t, len(content), e["content_index"])
					require.Equal(t, map[string]any{"type": "reasoning_text", "text": ""}, part)
					content = append(content, part)
				case "response.reasoning_text.delta":
					at := content[int(e["content_index"].(float64))]
					at["text"] = at["text"].(string) + e["delta"].(string)
				case "response.content_part.done":
					require.Equal(t, content[int(e["content_index"].(float64))], part)
				case "response.output_item.done":
					require.Equal(t, []any{part0(content)}, e["item"].(map[string]any)["content"])
				}
			}
			require.Len(t, content, 1, "%s, store %s", vendor, store)
			require.Equal(t, "Is it so?", content[0]["text"])
			last := stream[len(stream)-1]["response"].(map[string]any)
			require.Equal(t, []any{part0(content)}, last["output"].([]any)[0].(map[string]any)["content"])
		}
	}
}

func part0(content []map[string]any) any {
	if len(content) == 0 {
		return nil
	}
	return content[0]
}

// What is sealed has no text, and so no part.
func TestSealedReasoningHasNoPart(t *testing.T) {
	t.Parallel()
	_, s := behind(t, "responses", func([]string) modeltest.Answer {
		return modeltest.Answer{Thoughts: "Hm.", Text: "a"}
	})
	for _, e := range eventsOf(t, s.do("POST", "/v1/responses", `{"input":"q","stream":true}`).raw) {
		if part, ok := e["part"].(map[string]any); ok {
			require.NotEqual(t, "reasoning_text", part["type"])
		}
	}
}

// LangChain takes a stream for whole that ends in response.failed; it throws on an event error.
func TestAFailedStreamHasAnErrorBeforeItsEnd(t *testing.T) {
	t.Parallel()
	for _, answer := range []modeltest.Answer{{Text: "half an answer", Cut: true}, {Status: http.StatusBadRequest}} {
		_, m := scripted(t, func([]string) modeltest.Answer { return answer })
		s := start(t, answeredBy(m))
		for _, store := range []string{"true", "false"} {
			stream := eventsOf(t, s.do("POST", "/v1/responses", `{"input":"q","stream":true,"store":`+store+`}`).raw)
			e, last := stream[len(stream)-2], stream[len(stream)-1]
			require.Equal(t, "response.failed", last["type"])
			failure := last["response"].(map[string]any)["error"].(map[string]any)
			require.Equal(t, map[string]any{
				"type": "error", "code": failure["code"], "message": failure["message"], "param": nil,
				"sequence_number": e["sequence_number"],
			}, e)
		}
	}
}

// The endpoint may call its model by another name than it was asked by.
func TestAResponseHasOneModelName(t *testing.T) {
	t.Parallel()
	_, s := behind(t, "chat", func([]string) modeltest.Answer { return modeltest.Answer{Text: "a"} })
	listed := s.must("GET", "/v1/models", "")["data"].([]any)
	require.NotEmpty(t, listed)
	for _, store := range []string{"true", "false"} {
		stream := eventsOf(t, s.do("POST", "/v1/responses", `{"input":"q","stream":true,"model":"x","store":`+store+`}`).raw)
		for _, e := range stream {
			if r, ok := e["response"].(map[string]any); ok {
				require.Equal(t, "m", r["model"], e["type"])
			}
		}
		id := stream[0]["response"].(map[string]any)["id"].(string)
		if store == "true" {
			require.Equal(t, "m", s.must("GET", "/v1/responses/"+id, "")["model"])
		}
	}
}

// A chat model is not asked in another tier, so a response does not say that it was.
func TestTheTierOfAResponse(t *testing.T) {
	t.Parallel()
	for vendor, want := range map[string]string{"chat": "default", "responses": "flex"} {
		server, s := behind(t, vendor, func([]string) modeltest.Answer { return modeltest.Answer{Text: "a"} })
		r := s.must("POST", "/v1/responses", `{"input":"q","service_tier":"flex"}`)
		require.Equal(t, want, r["service_tier"])
		var sent map[string]any
		require.NoError(t, json.Unmarshal(<-server.Bodies, &sent))
		require.Equal(t, vendor == "responses", sent["service_tier"] == "flex")
	}
}

// What a model behind a Responses API knows is its own to refuse.
func TestChoicesOfHostedTools(t *testing.T) {
	t.Parallel()
	_, s := behind(t, "responses", func([]string) modeltest.Answer { return modeltest.Answer{Text: "a"} })
	s.must("POST", "/v1/responses", `{"input":"q","top_logprobs":2,"include":["message.output_text.logprobs"],
		"tools":[{"type":"file_search","vector_store_ids":["v"]}],"tool_choice":{"type":"file_search"}}`)
	a := s.do("POST", "/v1/responses", `{"input":"q","tools":[{"type":"web_search"}],
		"tool_choice":{"type":"function","name":"f"}}`)
	require.Equal(t, http.StatusBadRequest, a.status, a.raw)
}
