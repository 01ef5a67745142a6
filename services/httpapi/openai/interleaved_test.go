package openai_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/model/endpoint"
	chatopenai "github.com/turnledger/turnledger/services/model/openai"
)

// call is a piece of the call of a tool as a chat endpoint sends it; the first piece has the id and the name.
func call(index int, id, arguments string) string {
	return fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":%q,"type":"function","function":{"name":"f%s","arguments":%q}}]}`,
		index, id, id, arguments)
}

// What a stream tells in pieces, and as whole items, is what its response has, also where an endpoint sends calls side
// by side, or goes on with a text behind a call. So the items of a conversation stand as the model told them.
func TestAnEndpointThatSendsPartsSideBySide(t *testing.T) {
	t.Parallel()
	more := func(index int, arguments string) string {
		return fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"arguments":%q}}]}`, index, arguments)
	}
	type list = []string
	for name, c := range map[string]struct{ deltas, items list }{
		"one after the other": {
			list{call(0, "a", `{"x":`), more(0, `1}`), call(1, "b", ``), more(1, `{}`)},
			list{`a{"x":1}`, `b{}`},
		},
		"side by side": {
			list{
				call(0, "a", `{"x":`), call(1, "b", `{"y":`), call(2, "c", ``),
				more(1, `2`), more(0, `1}`), more(1, `}`),
			},
			list{`a{"x":1}`, `b{"y":2}`, `c{}`},
		},
		"the first pieces come without arguments": {
			list{call(0, "a", ``), call(1, "b", ``), more(0, `{}`), more(1, `{}`)},
			list{`a{}`, `b{}`},
		},
		"a text behind a call": {
			list{
				`{"content":"I "}`, `{"content":"look."}`, call(0, "a", `{}`), `{"content":"Wait"}`, `{"content":"."}`,
			},
			list{"I look.", `a{}`, "Wait."},
		},
		"a thought behind a text": {
			list{
				`{"reasoning_content":"Hm"}`, `{"content":"I look."}`,
				`{"reasoning_content":"So"}`, `{"content":"Yes."}`,
			},
			list{"reasoning", "I look.", "reasoning", "Yes."},
		},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for _, d := range append(slices.Clone(c.deltas), `{}`) {
				reason := map[bool]string{true: `"stop"`, false: "null"}[d == `{}`]
				choice := `{"index":0,"delta":` + d + `,"finish_reason":` + reason + `}`
				_, _ = fmt.Fprintf(w, "data: {\"choices\":[%s]}\n\n", choice)
			}
			_, _ = w.Write([]byte("data: [DONE]\n\n"))
		}))
		s := start(t, answeredBy(chatopenai.New(endpoint.Config{URL: server.URL, Key: "k", Name: "m"})))
		id := s.begin()
		raw := s.do("POST", "/v1/responses", `{"stream":true,"input":"a","conversation":"`+id+`"}`).raw
		server.Close()
		all := eventsOf(t, raw)
		output, told := all[len(all)-1]["response"].(map[string]any)["output"].([]any), toldIn(t, all)
		var got []string
		for n, o := range output {
			item := o.(map[string]any)
			text := texts([]any{o})[0]
			if item["type"] == "function_call" {
				text = item["call_id"].(string) + item["arguments"].(string)
			}
			got = append(got, text)
			require.Equal(t, item, told.whole[n], name)
			require.True(t, strings.HasSuffix(text, told.pieces[n]), "%s: %s, told %s", name, text, told.pieces[n])
		}
		require.Equal(t, c.items, got, name)
		require.Equal(t, output, s.list(id, 10)[1:], name)
	}
}

// toldItems are the items that a stream told whole, and their texts in pieces.
type toldItems struct {
	whole  map[int]map[string]any
	pieces map[int]string
}

func toldIn(t *testing.T, all []map[string]any) toldItems {
	t.Helper()
	out := toldItems{map[int]map[string]any{}, map[int]string{}}
	for _, e := range all {
		at, _ := e["output_index"].(float64)
		n := int(at)
		switch name := e["type"].(string); {
		case strings.HasSuffix(name, ".delta"):
			require.NotContains(t, out.whole, n, "%s behind the end of its item", name)
			if !strings.Contains(name, "reasoning") {
				out.pieces[n] += e["delta"].(string)
			}
		case name == "response.function_call_arguments.done":
			require.Equal(t, out.pieces[n], e["arguments"])
			require.True(t, e["arguments"] == "" || json.Valid([]byte(e["arguments"].(string))))
		case name == "response.output_item.done":
			out.whole[n] = e["item"].(map[string]any)
		}
	}
	return out
}

// An answer that a limit of tokens or a filter left nothing of is incomplete, stored or not: the same request again is
// cut again. A filtered question stands in no later prompt, which the endpoint would refuse, too.
func TestAnAnswerThatWasCutToNothing(t *testing.T) {
	t.Parallel()
	for finish, reason := range map[services.Finish]string{
		services.FinishLength: "max_output_tokens", services.FinishFiltered: "content_filter",
	} {
		var asked [][]json.RawMessage
		keep := func(p services.Prompt) { asked = append(asked, p.Messages) }
		s := start(t, answeredBy(answers{finish: finish, asked: keep}))
		id := s.begin()
		for _, more := range []string{`,"conversation":"` + id + `"`, `,"store":false`} {
			a := s.do("POST", "/v1/responses", `{"input":"refused","max_output_tokens":16`+more+`}`)
			require.Equal(t, http.StatusOK, a.status, a.raw)
			require.Equal(t, "incomplete", a.body["status"])
			require.Equal(t, map[string]any{"reason": reason}, a.body["incomplete_details"])
			require.Equal(t, []string{""}, texts(a.body["output"].([]any)))
			require.Equal(t, "false", a.header.Get("X-Should-Retry"))
			all := eventsOf(t, s.do("POST", "/v1/responses", `{"stream":true,"input":"refused","max_output_tokens":16`+more+`}`).raw)
			require.Equal(t, "response.incomplete", all[len(all)-1]["type"])
		}
		asked = nil
		s.must("POST", "/v1/responses", `{"input":"2+2?","conversation":"`+id+`"}`)
		require.Equal(t, finish == services.FinishLength, strings.Contains(fmt.Sprintf("%s", asked), "refused"), finish)
	}
}

// A model that has nothing to add to the output of a tool has answered.
func TestAToolsOutputMayBeAllThatThereIs(t *testing.T) {
	t.Parallel()
	for _, stored := range []string{"", `,"store":false`} {
		s := start(t, answeredBy(answers{finish: services.FinishStop}))
		a := s.must("POST", "/v1/responses", `{"input":[{"role":"user","content":"book"},
			{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
			{"type":"function_call_output","call_id":"c","output":"done"}]`+stored+`}`)
		require.Equal(t, "completed", a["status"])
		require.Equal(t, []string{""}, texts(a["output"].([]any)))
	}
}

// A refusal of the model's endpoint is told by its status: a client may wait, or has to change something.
func TestRefusalsOfTheModelAreTold(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]struct {
		status      int
		retry, code string
	}{
		http.StatusBadRequest:          {http.StatusBadGateway, "false", "model_failed"},
		http.StatusUnauthorized:        {http.StatusBadGateway, "false", "model_failed"},
		http.StatusTooManyRequests:     {http.StatusTooManyRequests, "true", "rate_limit_exceeded"},
		http.StatusInternalServerError: {http.StatusBadGateway, "", "model_failed"},
	} {
		refused := modeltest.Answer{Status: status, RetryAfter: 7}
		_, s := behind(t, "chat", func([]string) modeltest.Answer { return refused })
		for _, stored := range []string{"", `,"store":false`} {
			a := s.do("POST", "/v1/responses", `{"input":"secret"`+stored+`}`)
			require.Equal(t, want.status, a.status)
			require.Equal(t, want.retry, a.header.Get("X-Should-Retry"), status)
			require.Equal(t, want.code, a.body["error"].(map[string]any)["code"])
			require.Contains(t, a.raw, fmt.Sprintf("answered %d", status))
			if status == http.StatusTooManyRequests {
				require.Equal(t, "7", a.header.Get("Retry-After"))
			}
		}
		require.Contains(t, s.logs.String(), fmt.Sprintf(`answered %d`, status))
		require.NotContains(t, s.logs.String(), "secret")
	}
}
