package model_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/answer"
	"github.com/turnledger/turnledger/services/model/anthropic"
	"github.com/turnledger/turnledger/services/model/endpoint"
	"github.com/turnledger/turnledger/services/model/openai"
	"github.com/turnledger/turnledger/services/model/responses"
)

// everything is a prompt with all that a caller can ask of an answer.
func everything() services.Prompt {
	yes, warm, top := true, 0.5, 0.9
	p := prompt(`{"role":"user","content":"q"}`)
	p.Conversation = "not for the model"
	p.ModelOptions = services.ModelOptions{
		Tools: []services.ModelTool{
			{Kind: services.ToolFunction, Name: "weather", Description: "Tells it.", Strict: &yes,
				Parameters: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},` +
					`"required":["city"],"additionalProperties":false}`)},
			{Kind: services.ToolCustom, Name: "shell"},
		},
		ToolChoice: services.ToolChoice{Mode: services.ToolNamed, Tool: "weather"}, OneCall: true,
		Temperature: &warm, TopP: &top, MaxTokens: 99, Effort: "low", Summary: "auto", Verbosity: "low",
		Format: services.AnswerFormat{Kind: "json_schema", Name: "out", Schema: json.RawMessage(`{"type":"object"}`),
			Strict: &yes},
		Others: map[string]json.RawMessage{"top_logprobs": json.RawMessage(`2`)},
	}
	return p
}

const weatherSchema = `{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],
	"additionalProperties":false}`

// asked are the bodies that each kind of endpoint gets for everything.
var asked = map[string]string{
	"openai": `{"model":"m","stream":true,"stream_options":{"include_usage":true},
		"messages":[{"role":"user","content":"q"}],
		"tools":[{"type":"function","function":{"name":"weather","description":"Tells it.","strict":true,
			"parameters":` + weatherSchema + `}},{"type":"custom","custom":{"name":"shell"}}],
		"tool_choice":{"type":"function","function":{"name":"weather"}},"parallel_tool_calls":false,
		"temperature":0.5,"top_p":0.9,"max_completion_tokens":99,"reasoning_effort":"low","verbosity":"low",
		"response_format":{"type":"json_schema","json_schema":{"name":"out","schema":{"type":"object"},"strict":true}}}`,
	"anthropic": `{"model":"m","stream":true,"max_tokens":99,"messages":[{"role":"user","content":"q"}],
		"tools":[{"name":"weather","description":"Tells it.","strict":true,"input_schema":` + weatherSchema + `},
			{"name":"shell","input_schema":{"type":"object","properties":{"input":{"type":"string"}},
				"required":["input"]}}],
		"tool_choice":{"type":"tool","name":"weather","disable_parallel_tool_use":true},
		"temperature":0.5,"top_p":0.9,"thinking":{"type":"adaptive","display":"summarized"},
		"output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"object"}}}}`,
	"responses": `{"model":"m","stream":true,"store":false,"include":["reasoning.encrypted_content"],
		"input":[{"role":"user","content":"q"}],"top_logprobs":2,
		"tools":[{"type":"function","name":"weather","description":"Tells it.","strict":true,
			"parameters":` + weatherSchema + `},{"type":"custom","name":"shell"}],
		"tool_choice":{"type":"function","name":"weather"},"parallel_tool_calls":false,
		"temperature":0.5,"top_p":0.9,"max_output_tokens":99,"reasoning":{"effort":"low","summary":"auto"},
		"text":{"verbosity":"low","format":{"type":"json_schema","name":"out","schema":{"type":"object"},"strict":true}}}`,
}

// vendorOf returns the name under which models runs a test.
func vendorOf(t *testing.T) string {
	t.Helper()
	return t.Name()[strings.LastIndex(t.Name(), "/")+1:]
}

//conformance:o49
func TestModelsPassOnWhatIsAskedOfAnAnswer(t *testing.T) {
	models(t, 0, func(t *testing.T, server *modeltest.Server, m services.Model) {
		_, err := m.Answer(t.Context(), everything(), func(services.AnswerPiece) {})
		require.NoError(t, err)
		require.JSONEq(t, asked[vendorOf(t)], string(<-server.Bodies))

		_, err = m.Answer(t.Context(), prompt(`{"role":"user","content":"q"}`), func(services.AnswerPiece) {})
		require.NoError(t, err)
		var got map[string]any
		require.NoError(t, json.Unmarshal(<-server.Bodies, &got))
		for _, name := range []string{"tools", "tool_choice", "temperature", "top_p", "reasoning", "text", "thinking",
			"response_format", "parallel_tool_calls", "max_completion_tokens"} {
			require.NotContains(t, got, name, "what nobody asked for is the model's")
		}
	})
}

// A setting bounds the answers whose callers name no bound.
func TestASettingBoundsAnswers(t *testing.T) {
	t.Parallel()
	for member, model := range map[string]func(endpoint.Config) services.Model{
		"max_completion_tokens": openai.New, "max_tokens": anthropic.New, "max_output_tokens": responses.New,
	} {
		server := modeltest.New(t, always(modeltest.Answer{Text: "x"}))
		m := model(endpoint.Config{URL: server.URL + "/v1", Key: "k", Name: "m", MaxTokens: 77})
		for bound, want := range map[int64]float64{0: 77, 5: 5} {
			p := prompt(`{"role":"user","content":"q"}`)
			p.MaxTokens = bound
			_, err := m.Answer(t.Context(), p, func(services.AnswerPiece) {})
			require.NoError(t, err)
			var got map[string]any
			require.NoError(t, json.Unmarshal(<-server.Bodies, &got))
			require.Equal(t, want, got[member], member)
		}
	}
}

// An answer ends where the caller of a chat completion says, also at Anthropic's, which refuses blank texts.
func TestAnAnswerStopsWhereAChatSays(t *testing.T) {
	t.Parallel()
	for stop, want := range map[string]any{
		`"END"`: []any{"END"}, `["a"," ","b"]`: []any{"a", "b"}, `"\n"`: nil, `null`: nil, `7`: nil,
	} {
		server := modeltest.New(t, always(modeltest.Answer{Text: "x"}))
		p := prompt(`{"role":"user","content":"q"}`)
		p.Members = map[string]json.RawMessage{"stop": json.RawMessage(stop)}
		m := anthropic.New(endpoint.Config{URL: server.URL + "/v1", Key: "k", Name: "m"})
		_, err := m.Answer(t.Context(), p, func(services.AnswerPiece) {})
		require.NoError(t, err)
		var got map[string]any
		require.NoError(t, json.Unmarshal(<-server.Bodies, &got))
		require.Equal(t, want, got["stop_sequences"], stop)
	}
}

func TestPenaltiesReachAChat(t *testing.T) {
	t.Parallel()
	server := modeltest.New(t, always(modeltest.Answer{Text: "x"}))
	p, half, less := prompt(`{"role":"user","content":"q"}`), 0.5, -0.5
	p.PresencePenalty, p.FrequencyPenalty = &half, &less
	m := openai.New(endpoint.Config{URL: server.URL + "/v1", Name: "m"})
	_, err := m.Answer(t.Context(), p, func(services.AnswerPiece) {})
	require.NoError(t, err)
	var got map[string]any
	require.NoError(t, json.Unmarshal(<-server.Bodies, &got))
	require.Equal(t, []any{0.5, -0.5}, []any{got["presence_penalty"], got["frequency_penalty"]})
}

func TestModelsTellOfCallsThoughtsAndUsage(t *testing.T) {
	models(t, 0, func(t *testing.T, server *modeltest.Server, m services.Model) {
		server.Script(always(modeltest.Answer{
			Thoughts: "Where is it?", Text: "I look.",
			Calls: []modeltest.Call{{ID: "c1", Name: "weather", Arguments: `{"city":"Łódź"}`}, {ID: "c2", Name: "now",
				Arguments: "{}"}},
		}))
		var pieces []services.AnswerPiece
		answer, err := m.Answer(t.Context(), everything(), func(p services.AnswerPiece) { pieces = append(pieces, p) })
		require.NoError(t, err)
		require.Equal(t, services.FinishStop, answer.Finish)
		require.Equal(t, &session.Usage{Input: 12, Cached: 5, Output: 7, Reasoning: 3}, answer.Usage)
		require.Equal(t, modeltest.ModelName, answer.Model)
		require.Equal(t, "I look.", answer.Text())
		require.Len(t, answer.Parts, 4)
		thoughts := answer.Parts[0]
		require.Equal(t, "Where is it?", thoughts.Text)
		carried := make([]string, len(answer.Parts))
		for i := range answer.Parts[1:] {
			carried[i+1] = string(answer.Parts[i+1].Item)
			answer.Parts[i+1].Item, answer.Parts[i+1].ID = nil, ""
		}
		require.Equal(t, services.AnswerPart{Kind: services.PartText, Text: "I look."}, answer.Parts[1])
		require.Equal(t, services.AnswerPart{Kind: services.PartCall, Text: `{"city":"Łódź"}`, CallID: "c1",
			Name: "weather"}, answer.Parts[2])
		require.Equal(t, services.AnswerPart{Kind: services.PartCall, Text: `{}`, CallID: "c2", Name: "now"},
			answer.Parts[3])
		switch vendorOf(t) {
		case "openai":
			require.Equal(t, services.PartReasoning, thoughts.Kind)
			require.Nil(t, thoughts.Item)
		case "anthropic":
			require.Equal(t, services.PartReasoning, thoughts.Kind)
			require.JSONEq(t, `{"type":"reasoning","summary":[],"encrypted_content":"anthropic.signature:signed",
				"content":[{"type":"reasoning_text","text":"Where is it?"}]}`, string(thoughts.Item))
		case "responses":
			require.Equal(t, services.PartSummary, thoughts.Kind)
			require.Equal(t, "rs_1", thoughts.ID)
			require.JSONEq(t, `{"type":"reasoning","id":"rs_1","encrypted_content":"responses.id:rs_1:sealed",
				"summary":[{"type":"summary_text","text":"Where is it?"}]}`, string(thoughts.Item))
			require.Contains(t, carried[1], `"phase":"final_answer"`)
			require.Contains(t, carried[2], `"namespace":"tools"`)
			require.Contains(t, carried[3], `"caller":{"type":"direct"}`)
		}
		for i := range pieces {
			if pieces[i].Part > 0 {
				pieces[i].Item, pieces[i].ID = nil, ""
			}
		}
		requireJoined(t, answer.Parts, pieces)
	})
}

// requireJoined: the pieces make up the parts, and each part begins with its names.
func requireJoined(t *testing.T, parts []services.AnswerPart, pieces []services.AnswerPiece) {
	t.Helper()
	var joined []services.AnswerPart
	for _, p := range pieces {
		if p.Part == len(joined) {
			joined = append(joined, services.AnswerPart{Kind: p.Kind, CallID: p.CallID, Name: p.Name, ID: p.ID})
		}
		joined[p.Part].Text += p.Text
		if p.Item != nil {
			joined[p.Part].Item = p.Item
		}
	}
	require.Equal(t, parts, joined)
	require.Greater(t, len(pieces), len(parts), "arguments and words come piece by piece")
}

// A custom tool's input is free text; Anthropic gets a tool with one argument in its place.
func TestAnthropicCallsCustomTools(t *testing.T) {
	models(t, 0, func(t *testing.T, server *modeltest.Server, m services.Model) {
		if vendorOf(t) != "anthropic" {
			return
		}
		server.Script(always(modeltest.Answer{Text: "So:",
			Calls: []modeltest.Call{{ID: "c", Name: "shell", Arguments: `{"input":"ls -l"}`}}}))
		answer, err := m.Answer(t.Context(), everything(), func(services.AnswerPiece) {})
		require.NoError(t, err)
		require.Equal(t, services.AnswerPart{Kind: services.PartCustomCall, Text: "ls -l", CallID: "c", Name: "shell"},
			answer.Parts[1])
	})
}

// stored are messages as the log keeps the items of a conversation: a message for each call, members for the Responses
// API, reasoning, and calls and results whose other half is gone.
var stored = prompt(
	`{"role":"user","content":"q","item":{"id":"msg_0"}}`,
	`{"role":"assistant","content":null,"item":{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"e"}}`,
	`{"role":"assistant","content":null,"item":{"type":"reasoning","id":"rs_ours","summary":[],"encrypted_content":"responses.id:rs%3A9:e:"}}`,
	`{"role":"assistant","content":null,"item":{"type":"reasoning","id":"rs_again","summary":[],"encrypted_content":"responses.id:rs%3A9:e:"}}`,
	`{"role":"assistant","content":null,"item":{"type":"reasoning","encrypted_content":"anthropic.signature:e"}}`,
	`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"twice","arguments":"{}"}}]}`,
	`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}],
		"item":{"id":"fc_1","namespace":"n","caller":{"type":"direct"}}}`,
	`{"role":"assistant","content":null,"tool_calls":[{"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]}`,
	`{"role":"tool","tool_call_id":"c1","content":"1","item":{"caller":{"type":"direct"}}}`,
	`{"role":"tool","tool_call_id":"c2","content":[{"type":"text","text":"2"}]}`,
	`{"role":"assistant","content":"a","item":{"phase":"commentary"}}`,
	`{"role":"tool","tool_call_id":"c1","content":"again"}`,
	`{"role":"tool","tool_call_id":"gone","content":"late"}`,
	`{"role":"assistant","content":null,"tool_calls":[{"id":"c3","type":"function","function":{"name":"h","arguments":"{}"}}]}`,
	`{"role":"assistant","content":null,"item":{"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"e"}}`,
	`{"role":"user","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"https://i.test/p"}}]}`,
)

//conformance:o72
func TestStoredItemsAreWhatAnEndpointTakes(t *testing.T) {
	models(t, 0, func(t *testing.T, server *modeltest.Server, m services.Model) {
		if vendorOf(t) == "anthropic" {
			return // the context builder makes its form
		}
		_, err := m.Answer(t.Context(), stored, func(services.AnswerPiece) {})
		require.NoError(t, err)
		var got struct{ Messages, Input json.RawMessage }
		require.NoError(t, json.Unmarshal(<-server.Bodies, &got))
		if vendorOf(t) == "openai" {
			require.JSONEq(t, `[{"role":"user","content":"q"},
				{"role":"assistant","content":"[Tool call: twice {}]","tool_calls":[
					{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},
					{"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]},
				{"role":"tool","tool_call_id":"c1","content":"1"},
				{"role":"tool","tool_call_id":"c2","content":[{"type":"text","text":"2"}]},
				{"role":"assistant","content":"a"},{"role":"user","content":"[Tool result: again]"},
				{"role":"user","content":"[Tool result: late]"},
				{"role":"assistant","content":"[Tool call: h {}]"},
				{"role":"user","content":[{"type":"text","text":"see"},
					{"type":"image_url","image_url":{"url":"https://i.test/p"}}]}]`, string(got.Messages))
			return
		}
		require.JSONEq(t, `[{"role":"user","content":"q"},
			{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"e"},
			{"type":"reasoning","id":"rs:9","summary":[],"encrypted_content":"e:"},
			{"role":"assistant","content":"[Tool call: twice {}]"},
			{"type":"function_call","call_id":"c1","name":"f","arguments":"{}","namespace":"n","caller":{"type":"direct"}},
			{"type":"function_call","call_id":"c2","name":"g","arguments":"{}"},
			{"type":"function_call_output","call_id":"c1","output":"1","caller":{"type":"direct"}},
			{"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"2"}]},
			{"role":"assistant","content":"a","phase":"commentary"},{"role":"user","content":"[Tool result: again]"},
			{"role":"user","content":"[Tool result: late]"},
			{"role":"assistant","content":"[Tool call: h {}]"},
			{"role":"user","content":[{"type":"input_text","text":"see"},
				{"type":"input_image","image_url":"https://i.test/p","detail":"auto"}]}]`, string(got.Input))
	})
}

// Results must stand right behind the message of their calls, also where the model said something in between.
func TestCallsStandRightBeforeTheirResults(t *testing.T) {
	const (
		a    = `{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}`
		b    = `{"id":"b","type":"function","function":{"name":"f","arguments":"{}"}}`
		word = `{"role":"assistant","content":"w"}`
	)
	says := func(content string, calls ...string) string {
		return `{"role":"assistant","content":` + content + `,"tool_calls":[` + strings.Join(calls, ",") + `]}`
	}
	result := func(id string) string { return `{"role":"tool","tool_call_id":"` + id + `","content":"1"}` }
	type list = []string
	for name, c := range map[string]struct{ in, want list }{
		"a word behind a call": {
			list{says(`null`, a), word, result("a")},
			list{says(`"w"`, a), result("a")},
		},
		"words around a call": {
			list{says(`"v"`, a), word, result("a")},
			list{`{"role":"assistant","content":"v"}`, says(`"w"`, a), result("a")},
		},
		"a word between two calls": {
			list{says(`null`, a), word, says(`null`, b), result("a"), result("b")},
			list{word, says(`null`, a, b), result("a"), result("b")},
		},
		"a word behind two calls of one message": {
			list{says(`null`, a, b), word, result("b"), result("a")},
			list{says(`"w"`, a, b), result("b"), result("a")},
		},
		"a user's word behind a call": {
			list{says(`null`, a), `{"role":"user","content":"w"}`, result("a")},
			list{`{"role":"assistant","content":"[Tool call: f {}]"}`, `{"role":"user","content":"w"}`,
				`{"role":"user","content":"[Tool result: 1]"}`},
		},
	} {
		server := modeltest.New(t, always(modeltest.Answer{Text: "x"}))
		m := openai.New(endpoint.Config{URL: server.URL + "/v1", Key: "k", Name: "m"})
		_, err := m.Answer(t.Context(), prompt(c.in...), func(services.AnswerPiece) {})
		require.NoError(t, err)
		var got struct{ Messages json.RawMessage }
		require.NoError(t, json.Unmarshal(<-server.Bodies, &got))
		require.JSONEq(t, "["+strings.Join(c.want, ",")+"]", string(got.Messages), name)
	}
}

// The echo calls a tool once, so that a client's loop of calls and results ends.
func TestEchoCallsAToolOnce(t *testing.T) {
	t.Parallel()
	answer := func(p services.Prompt) services.ModelAnswer {
		a, err := answer.Echo{}.Answer(context.Background(), p, func(services.AnswerPiece) {})
		require.NoError(t, err)
		return a
	}
	p := everything()
	call := answer(p).Parts[0]
	require.Equal(t, services.PartCall, call.Kind)
	require.Equal(t, "weather", call.Name)
	require.JSONEq(t, `{"city":"q"}`, call.Text)
	require.NotEqual(t, call.CallID, answer(p).Parts[0].CallID)

	p.ToolChoice = services.ToolChoice{Mode: services.ToolNamed, Tool: "shell"}
	custom := answer(p).Parts[0]
	require.Equal(t, services.AnswerPart{Kind: services.PartCustomCall, Name: "shell", Text: "q",
		CallID: custom.CallID}, custom)

	p.ToolChoice.Mode = services.ToolNone
	require.Contains(t, answer(p).Text(), "You said: q")

	p = everything()
	p.Messages = append(p.Messages, json.RawMessage(`{"role":"tool","tool_call_id":"c","content":"sunny"}`))
	require.Contains(t, answer(p).Text(), "You said: sunny")
}

func TestEchoInventsArgumentsThatFit(t *testing.T) {
	t.Parallel()
	p := prompt(`{"role":"user","content":"q"}`)
	p.Tools = []services.ModelTool{{Kind: services.ToolFunction, Name: "f", Parameters: json.RawMessage(`{
		"type":"object","required":["s","n","b","l","e","c","u","o","x","m"],"properties":{
		"s":{"type":"string"},"n":{"type":"integer","minimum":3},"b":{"type":"boolean"},"l":{"type":"array"},
		"e":{"enum":["one","two"]},"c":{"const":7},"u":{"anyOf":[{"type":"null"},{"type":"string"}]},
		"o":{"type":"object","required":["in"],"properties":{"in":{"type":["string","null"]}}},
		"x":{"type":"number"},"m":{"type":"string","examples":["m1"]},"optional":{"type":"string"}}}`)}}
	a, err := answer.Echo{}.Answer(t.Context(), p, func(services.AnswerPiece) {})
	require.NoError(t, err)
	require.JSONEq(t, `{"s":"q","n":3,"b":true,"l":[],"e":"one","c":7,"u":null,"o":{"in":"q"},"x":0,"m":"m1"}`,
		a.Parts[0].Text)
}
