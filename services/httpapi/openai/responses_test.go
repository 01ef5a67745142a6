package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/answer"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/httpapi/openai/respond"
	"github.com/turnledger/turnledger/services/items"
	"github.com/turnledger/turnledger/services/model/endpoint"
	chatopenai "github.com/turnledger/turnledger/services/model/openai"
)

// alone is the presence of the only process.
type alone struct{}

func (alone) Announce(uuid.UUID, func() answer.Answering) (func(), error) { return func() {}, nil }
func (alone) Present(context.Context, uuid.UUID) (_ bool, _ answer.Answering, _ error) {
	return false, answer.Answering{}, nil
}
func (alone) Claimed(context.Context, uuid.UUID) (uint64, error)     { return 0, nil }
func (alone) Claim(context.Context, uuid.UUID, uint64) (bool, error) { return true, nil }

// answeredBy has a model answer.
func answeredBy(model services.Model) setting { return answeredWithin(0, model) }

// answeredWithin has a model answer that takes so many tokens; 0 if that is not known.
func answeredWithin(tokens int, model services.Model) setting {
	return answeredAs(model, func(r *answer.Config) { r.Context = tokens })
}

// answeredAs has a model answer through services that change changes.
func answeredAs(model services.Model, change func(*answer.Config)) setting {
	return func(s *stack) {
		cfg := answer.Config{
			Ports: services.Ports{
				Turns: s.services.History, Messages: s.services.History, SessionWrites: s.services.History,
				Lookup: s.services.Reader, Sessions: s.services.Reader,
			}, States: s.services.Reader,
			Questions: s.services.Reader, Contexts: s.services.Contexts, Model: model, Presence: alone{},
			SessionOf: s.prunedIn, Log: s.log, Output: respond.Output, IDs: items.Minter{Key: s.cfg.Key},
			Count: contextbuilder.Estimate{}.Count,
		}
		change(&cfg)
		s.cfg.Responses = answer.New(cfg)
	}
}

// scripted is a model that a test scripts, behind an endpoint.
func scripted(t *testing.T, script func(prompt []string) modeltest.Answer) (*modeltest.Server, services.Model) {
	t.Helper()
	server := modeltest.New(t, script)
	return server, chatopenai.New(endpoint.Config{URL: server.URL + "/v1", Key: "k", Name: "m"})
}

func weather() responses.ToolUnionParam {
	return responses.ToolUnionParam{OfFunction: &responses.FunctionToolParam{
		Name: "weather", Strict: sdk.Bool(false), Parameters: map[string]any{"type": "object",
			"properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"}},
	}}
}

func asks(text string) responses.ResponseNewParamsInputUnion {
	return responses.ResponseNewParamsInputUnion{OfString: sdk.String(text)}
}

func outputs(call, text string) responses.ResponseNewParamsInputUnion {
	return responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{
		{OfFunctionCallOutput: &responses.ResponseInputItemFunctionCallOutputParam{
			CallID: sdk.String(call),
			Output: responses.ResponseInputItemFunctionCallOutputOutputUnionParam{OfString: sdk.String(text)},
		}},
	}}
}

// create answers a request at once, or as a stream whose events are counted.
func create(t *testing.T, c sdk.Client, streamed bool, p responses.ResponseNewParams) *responses.Response {
	t.Helper()
	if !streamed {
		out, err := c.Responses.New(t.Context(), p)
		require.NoError(t, err)
		return out
	}
	stream := c.Responses.NewStreaming(t.Context(), p)
	var last responses.ResponseStreamEventUnion
	var types []string
	for n := 0; stream.Next(); n++ {
		last = stream.Current()
		require.EqualValues(t, n, last.SequenceNumber)
		types = append(types, last.Type)
	}
	require.NoError(t, stream.Err())
	require.Equal(t, []string{"response.created", "response.in_progress", "response.output_item.added"}, types[:3])
	require.Equal(t, "response.completed", last.Type)
	return &last.Response
}

func callOf(t *testing.T, r *responses.Response) responses.ResponseFunctionToolCall {
	t.Helper()
	require.Len(t, r.Output, 1)
	return r.Output[0].AsFunctionCall()
}

// A run with a tool, as the official client makes it: in a conversation, and behind a response. What a response was, it
// is when it is read again.
//
//conformance:o7 o55 o61 o62 o75
func TestARunWithATool(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	c := s.client()
	for _, streamed := range []bool{false, true} {
		for _, inConversation := range []bool{false, true} {
			p := responses.ResponseNewParams{Model: "echo", Tools: []responses.ToolUnionParam{weather()}}
			if inConversation {
				p.Conversation.OfString = sdk.String(s.begin())
			}
			p.Input = asks("Łódź")
			first := create(t, c, streamed, p)
			call := callOf(t, first)
			require.JSONEq(t, `{"city":"Łódź"}`, call.Arguments)
			p.Input = outputs(call.CallID, "sunny")
			if !inConversation {
				p.PreviousResponseID = sdk.String(first.ID)
			}
			second := create(t, c, streamed, p)
			require.Contains(t, second.OutputText(), "You said: sunny")
			p.Input, p.Tools = asks("And tomorrow?"), nil
			if !inConversation {
				p.PreviousResponseID = sdk.String(second.ID)
			}
			third := create(t, c, streamed, p)
			require.Contains(t, third.OutputText(), "You said: And tomorrow? (4 messages before)")
			for _, r := range []*responses.Response{first, second, third} {
				again, err := c.Responses.Get(t.Context(), r.ID, responses.ResponseGetParams{})
				require.NoError(t, err)
				require.JSONEq(t, r.RawJSON(), again.RawJSON())
			}
			given, err := c.Responses.InputItems.List(t.Context(), second.ID,
				responses.InputItemListParams{Order: "asc"})
			require.NoError(t, err)
			require.Equal(t, []string{"message", "function_call", "function_call_output"}, typesOf(given.Data))
			if inConversation {
				all := s.list(p.Conversation.OfString.Value, 100)
				require.Equal(t, []string{"Łódź", "function_call", "function_call_output", second.OutputText(),
					"And tomorrow?", third.OutputText()}, texts(all))
				require.Equal(t, second.Output[0].ID, ids(all)[3], "an item has one id, in answers and in lists")
				require.Equal(t, first.Output[0].ID, ids(all)[1])
			}
		}
	}
	if s.document.Checked.Load() == 0 {
		t.Log("no document: nothing was held against it")
	}
}

func typesOf(all []responses.ResponseItemUnion) (out []string) {
	for _, i := range all {
		out = append(out, i.Type)
	}
	return out
}

// Many continue one response at once, also one that ended in a tool call: one goes on, the others branch, and none sees
// what another went on with.
//
//conformance:o67 o68 o79
func TestManyContinueAResponseAtOnce(t *testing.T) {
	t.Parallel()
	many := 20
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		many = 100
	}
	s := start(t, answeredBy(answer.Echo{}))
	c := s.client()
	for _, withTool := range []bool{false, true} {
		p := responses.ResponseNewParams{Model: "echo", Input: asks("root")}
		if withTool {
			p.Tools = []responses.ToolUnionParam{weather()}
		}
		root := create(t, c, false, p)
		var all sync.WaitGroup
		got, errs := make([]*responses.Response, many), make([]error, many)
		for n := range many {
			next := responses.ResponseNewParams{Model: "echo", PreviousResponseID: sdk.String(root.ID)}
			word := fmt.Sprintf("branch-%d", n)
			if next.Input = asks(word); withTool {
				next.Input = outputs(callOf(t, root).CallID, word)
			}
			all.Go(func() { got[n], errs[n] = c.Responses.New(t.Context(), next) })
		}
		all.Wait()
		require.NoError(t, errors.Join(errs...), "nobody is told to come again")
		sessions := map[string]bool{}
		for n, r := range got {
			require.Contains(t, r.OutputText(), fmt.Sprintf("You said: branch-%d (2 messages before)", n))
			given := s.must("GET", "/v1/responses/"+r.ID+"/input_items?order=asc", "")
			require.Len(t, given["data"], 3, "nothing of the others")
			sessions[s.sessionOf(r.ID)] = true
		}
		require.Len(t, sessions, many)
		require.True(t, sessions[s.sessionOf(root.ID)], "one went on")
	}
}

// sessionOf returns the session that a response stands in.
func (s *stack) sessionOf(id string) string {
	s.t.Helper()
	session, err := s.cfg.Responses.SessionOf(s.t.Context(), id, services.Caller{
		May: func(context.Context, string) error { return nil }})
	require.NoError(s.t, err)
	return session
}

// A conversation never grows by previous_response_id.
//
//conformance:o55
func TestAConversationIsNotContinuedByAResponse(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	id := s.begin()
	first := s.must("POST", "/v1/responses", `{"input":"a","conversation":{"id":"`+id+`"}}`)
	require.Equal(t, map[string]any{"id": id}, first["conversation"])
	next := s.must("POST", "/v1/responses", `{"input":"b","previous_response_id":"`+first["id"].(string)+`"}`)
	require.NotContains(t, next, "conversation")
	require.Contains(t, fmt.Sprint(next["output"]), "You said: b (2 messages before)")
	require.Len(t, s.list(id, 10), 2)
}

// What is not to be stored uses the history and leaves nothing.
//
//conformance:o56
func TestAResponseThatIsNotStored(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	id := s.begin()
	first := s.must("POST", "/v1/responses", `{"input":"a","conversation":"`+id+`"}`)
	for _, of := range []string{`"conversation":"` + id + `"`,
		`"previous_response_id":"` + first["id"].(string) + `"`} {
		r := s.must("POST", "/v1/responses", `{"input":"b","store":false,`+of+`}`)
		require.Contains(t, fmt.Sprint(r["output"]), "You said: b (2 messages before)")
		require.Equal(t, false, r["store"])
		require.Equal(t, http.StatusNotFound, s.do("GET", "/v1/responses/"+r["id"].(string), "").status)
	}
	r := s.must("POST", "/v1/responses", `{"input":"b","store":false}`)
	require.Contains(t, fmt.Sprint(r["output"]), "You said: b (0 messages before)")
	require.Len(t, s.list(id, 10), 2)
}

// A client that lost the answer sends the same call again, and gets the first answer; the model is asked once. The same
// text twice is two messages.
//
//conformance:o40
func TestACallThatComesAgain(t *testing.T) {
	t.Parallel()
	model, m := scripted(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "yes"} })
	s := start(t, answeredBy(m))
	id := s.begin()
	root := s.must("POST", "/v1/responses", `{"input":"root"}`)["id"].(string)
	s.must("POST", "/v1/responses", `{"input":"another","previous_response_id":"`+root+`"}`)
	for _, body := range []string{
		`{"input":"a","conversation":"` + id + `"}`, `{"input":"a"}`,
		`{"input":"a","previous_response_id":"` + root + `"}`,
	} {
		first := s.must("POST", "/v1/responses", body, "X-Stainless-Retry-Count", "0")
		asked := len(model.Asked)
		again := s.must("POST", "/v1/responses", body, "X-Stainless-Retry-Count", "1")
		require.Equal(t, first, again, body)
		stream := s.do("POST", "/v1/responses", strings.Replace(body, "{", `{"stream":true,`, 1))
		require.Equal(t, asked+1, len(model.Asked), "a stream is another call")
		require.Contains(t, stream.raw, "event: response.completed")
		other := s.must("POST", "/v1/responses", body, "X-Stainless-Retry-Count", "0")
		require.NotEqual(t, first["id"], other["id"], "the same text twice is two messages")
	}
}

// If the model fails, the caller is told, the input is kept, and the same call again is answered.
//
//conformance:o23 o40 o57
func TestAModelThatFails(t *testing.T) {
	t.Parallel()
	fails := true
	_, m := scripted(t, func([]string) modeltest.Answer {
		if fails {
			return modeltest.Answer{Status: http.StatusBadRequest}
		}
		return modeltest.Answer{Text: "at last"}
	})
	s := start(t, answeredBy(m))
	id := s.begin()
	body := `{"input":"a","conversation":"` + id + `"}`
	a := s.do("POST", "/v1/responses", body)
	require.Equal(t, http.StatusBadGateway, a.status, a.raw)
	require.Equal(t, "model_failed", a.body["error"].(map[string]any)["code"])
	require.Equal(t, []string{"a"}, texts(s.list(id, 10)))
	stream := s.do("POST", "/v1/responses", `{"stream":true,"input":"b"}`)
	require.Contains(t, stream.raw, "event: response.failed")
	fails = false
	again := s.must("POST", "/v1/responses", body, "X-Stainless-Retry-Count", "1")
	require.Contains(t, fmt.Sprint(again["output"]), "at last")
	require.Equal(t, []string{"a", "at last"}, texts(s.list(id, 10)))
}

// What a request asks of the model reaches the model; instructions are of one request only. What a model tells of
// itself stands in the response.
//
//conformance:o49 o54
func TestWhatIsAskedReachesTheModel(t *testing.T) {
	t.Parallel()
	model, m := scripted(t, func([]string) modeltest.Answer {
		return modeltest.Answer{Text: "It is.", Thoughts: "Is it?", Long: true}
	})
	s := start(t, answeredBy(m))
	first := s.must("POST", "/v1/responses", `{
		"input":[{"role":"developer","content":"d"},{"role":"user","content":"a"}],"instructions":"be kind","temperature":0.5,"max_output_tokens":9,"metadata":{"k":"v"},"user":"u",
		"reasoning":{"effort":"low"},"text":{"format":{"type":"json_object"}}}`)
	require.Equal(t, []string{"system: be kind", "developer: d", "user: a"}, <-model.Asked)
	var sent map[string]any
	require.NoError(t, json.Unmarshal(<-model.Bodies, &sent))
	require.InDelta(t, 0.5, sent["temperature"], 0)
	require.EqualValues(t, 9, sent["max_completion_tokens"])
	require.Equal(t, "low", sent["reasoning_effort"])
	require.Equal(t, map[string]any{"type": "json_object"}, sent["response_format"])

	require.Equal(t, "incomplete", first["status"])
	require.Equal(t, map[string]any{"reason": "max_output_tokens"}, first["incomplete_details"])
	require.Equal(t, "m", first["model"])
	require.Equal(t, "be kind", first["instructions"])
	require.Equal(t, map[string]any{"k": "v"}, first["metadata"])
	require.Equal(t, map[string]any{"effort": "low", "summary": nil}, first["reasoning"])
	require.Equal(t, map[string]any{"input_tokens": 12.0, "output_tokens": 7.0, "total_tokens": 19.0,
		"input_tokens_details":  map[string]any{"cached_tokens": 5.0, "cache_write_tokens": 0.0},
		"output_tokens_details": map[string]any{"reasoning_tokens": 3.0}}, first["usage"])
	require.Equal(t, []string{"reasoning", "It is."}, texts(first["output"].([]any)))

	s.must("POST", "/v1/responses", `{"input":"b","previous_response_id":"`+first["id"].(string)+`"}`)
	require.Equal(t, []string{"developer: d", "user: a", "assistant: It is.", "user: b"}, <-model.Asked)
}

// The AI SDK sends the user's message again with the output of the tool; it stands once.
//
//conformance:o59
func TestAQuestionThatComesAgainStandsOnce(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	id := s.begin()
	tools := `"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}],"conversation":"` + id + `"`
	first := s.must("POST", "/v1/responses", `{"input":[{"role":"user","content":"a"}],`+tools+`}`)
	call := first["output"].([]any)[0].(map[string]any)["call_id"].(string)
	s.must("POST", "/v1/responses", `{"input":[{"role":"user","content":"a"},
		{"type":"function_call_output","call_id":"`+call+`","output":"o"}],`+tools+`}`)
	require.Equal(t, []string{"a", "function_call", "function_call_output"}, texts(s.list(id, 10))[:3])
	s.must("POST", "/v1/responses", `{"input":[{"role":"user","content":"a"}],"conversation":"`+id+`"}`)
	require.Len(t, s.list(id, 10), 6, "the same question without an output is another one")
}
