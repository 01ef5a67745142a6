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

	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/chat/endpoint"
	chatopenai "github.com/turnledger/turnledger/services/chat/openai"
	"github.com/turnledger/turnledger/services/httpapi/openai/respond"
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
			list{`a{"x":1}`, `b{"y":2}`, `c`},
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

// An answer whose limit of tokens left nothing of it is told as that: there is no turn without an answer to record.
func TestAnAnswerThatWasCutToNothing(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answers{finish: services.FinishLength}))
	a := s.do("POST", "/v1/responses", `{"input":"q","max_output_tokens":16}`)
	require.Equal(t, http.StatusBadGateway, a.status)
	require.Equal(t, "model_failed", a.body["error"].(map[string]any)["code"])
	require.Equal(t, respond.CutToNothing, a.body["error"].(map[string]any)["message"])
	all := eventsOf(t, s.do("POST", "/v1/responses", `{"input":"q","max_output_tokens":16,"stream":true}`).raw)
	require.Equal(t, respond.CutToNothing,
		all[len(all)-1]["response"].(map[string]any)["error"].(map[string]any)["message"])
	unstored := s.must("POST", "/v1/responses", `{"input":"q","max_output_tokens":16,"store":false}`)
	require.Equal(t, "incomplete", unstored["status"])
	require.Empty(t, unstored["output"])
}
