package openai_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/services/answer"
)

// An endpoint that speaks Responses names its reasoning itself. Here that has an id of ours, so that clients can refer
// to it, as the AI SDK does with the steps of a run; the endpoint gets it again with its own.
func TestReasoningOfAnEndpointCanBeReferredTo(t *testing.T) {
	t.Parallel()
	m, s := behind(t, "responses", func(prompt []string) modeltest.Answer {
		if len(prompt) < 3 {
			return modeltest.Answer{Thoughts: "hm", Calls: []modeltest.Call{{ID: "c", Name: "f", Arguments: "{}"}}}
		}
		return modeltest.Answer{Text: "done"}
	})
	for _, more := range []string{"", `,"stream":true`, `,"store":false,"include":["reasoning.encrypted_content"]`} {
		first := s.do("POST", "/v1/responses", `{"input":"a"`+tool+more+`}`)
		require.Equal(t, http.StatusOK, first.status, first.raw)
		<-m.Bodies
		output := outputOf(t, first)
		require.Equal(t, "reasoning", output[0].(map[string]any)["type"])
		stored := !strings.Contains(more, "store")
		input := []string{user("a")}
		for _, i := range output {
			item := i.(map[string]any)
			require.NotEqual(t, "rs_1", item["id"])
			raw, err := json.Marshal(item)
			require.NoError(t, err)
			if stored && item["type"] == "reasoning" {
				raw = []byte(`{"type":"item_reference","id":"` + item["id"].(string) + `"}`)
			}
			input = append(input, string(raw))
		}
		second := s.respondTo(append(input, result("c", "x")), tool, strings.Replace(more, `,"stream":true`, "", 1))
		sent := messagesIn(t, <-m.Bodies)
		thought := sent[1].(map[string]any)
		require.Equal(t, "rs_1", thought["id"], "%s: %v", more, sent)
		require.Equal(t, "sealed", thought["encrypted_content"])
		require.Len(t, sent, 4, "each stands once: %v", sent)
		if stored {
			require.Equal(t, []string{"a", "reasoning", "call c", "call_output c"}, saidIn(s.given(second["id"])))
		}
	}
}

// outputOf returns the output of a response, also of a streamed one.
func outputOf(t *testing.T, a reply) []any {
	t.Helper()
	if a.body != nil {
		return a.body["output"].([]any)
	}
	var last struct{ Response struct{ Output []any } }
	lines := strings.Split(strings.TrimSpace(a.raw), "\n")
	require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(lines[len(lines)-1], "data: ")), &last))
	return last.Response.Output
}

// What an endpoint tells of its messages and calls, and chats have no place for, is shown, and the endpoint gets it
// again.
func TestWhatAnEndpointTellsBesideIsCarried(t *testing.T) {
	t.Parallel()
	m, s := behind(t, "responses", func(prompt []string) modeltest.Answer {
		if len(prompt) == 1 {
			return modeltest.Answer{Text: "I look.", Calls: []modeltest.Call{{ID: "c", Name: "f", Arguments: "{}"}}}
		}
		return modeltest.Answer{Text: "done"}
	})
	const key = "Idempotency-Key"
	want := func(output []any) {
		require.Equal(t, "final_answer", output[0].(map[string]any)["phase"])
		require.Equal(t, "tools", output[1].(map[string]any)["namespace"])
		require.Equal(t, map[string]any{"type": "direct"}, output[1].(map[string]any)["caller"])
	}
	id := s.begin()
	on := `"conversation":"` + id + `"` + tool
	first := s.must("POST", "/v1/responses", `{"input":"a",`+on+`}`, key, "k")
	want(first["output"].([]any))
	want(s.list(id, 100)[1:])
	again := s.do("POST", "/v1/responses", `{"input":"a","stream":true,`+on+`}`, key, "k")
	want(outputOf(t, again))
	require.Equal(t, 2, strings.Count(again.raw, `"phase":"final_answer"`),
		"where the item ends, and in the response, as the first call was told: %s", again.raw)
	<-m.Bodies
	s.respondTo([]string{result("c", "x")}, ",", on)
	want(messagesIn(t, <-m.Bodies)[1:])
}

// Items of an endpoint that no chat has a form for have ids of ours, by which clients refer to them and approve what
// they ask for; the endpoint gets them with its own, however they come back. What is not stored keeps its ids.
func TestItemsOfAnEndpointHaveItsIDsThereAndOursHere(t *testing.T) {
	t.Parallel()
	const asks = `{"type":"mcp_approval_request","id":"mcpr_1","name":"f","server_label":"s","arguments":"{}"}`
	const called = `{"type":"mcp_call","id":"mcp_1","name":"f","server_label":"s","arguments":"{}",` +
		`"approval_request_id":"mcpr_1","output":"ok"}`
	approved := func(prompt []string) bool {
		return strings.Contains(strings.Join(prompt, "\n"), "approval_response")
	}
	m, s := behind(t, "responses", func(prompt []string) modeltest.Answer {
		if approved(prompt) {
			return modeltest.Answer{Text: "done", Items: []string{called}}
		}
		return modeltest.Answer{Text: "May I?", Items: []string{asks}}
	})
	approves := func(id string) string {
		return `{"type":"mcp_approval_response","approval_request_id":"` + id + `","approve":true}`
	}
	// named returns the types of items with what they are named, and what they approve.
	named := func(all []any) (out []string) {
		for _, one := range all {
			i, _ := one.(map[string]any)
			require.NotContains(t, i, "upstream")
			kind, _ := i["type"].(string)
			for _, member := range []string{"id", "approval_request_id", "request_id"} {
				if id, is := i[member].(string); is && strings.HasPrefix(kind, "mcp") &&
					(member != "id" || kind != "mcp_approval_response") {
					out = append(out, kind+" "+id)
				}
			}
		}
		return out
	}
	toEndpoint := []string{
		"mcp_approval_request mcpr_1", "mcp_approval_response mcpr_1", "mcp_approval_response mcpr_1",
	}
	begin := func(more string) (id string, output []any, first map[string]any) {
		first = s.must("POST", "/v1/responses", `{"input":"a"`+more+`}`)
		<-m.Bodies
		output = first["output"].([]any)
		return output[1].(map[string]any)["id"].(string), output, first
	}
	whole := func(output []any) string {
		raw, err := json.Marshal(output)
		require.NoError(t, err)
		return user("a") + "," + string(raw[1:len(raw)-1])
	}
	for name, of := range map[string]func() (more, id, input string){
		"a conversation": func() (string, string, string) {
			on := `,"conversation":"` + s.begin() + `"`
			id, _, _ := begin(on)
			return on, id, approves(id)
		},
		"behind a response": func() (string, string, string) {
			id, _, first := begin("")
			return `,"previous_response_id":"` + first["id"].(string) + `"`, id, approves(id)
		},
		"a reference, and no other item": func() (string, string, string) {
			id, _, _ := begin("")
			return "", id, reference(id) + "," + approves(id)
		},
		"the whole history": func() (string, string, string) {
			id, output, _ := begin("")
			return "", id, whole(output) + "," + approves(id)
		},
		"the whole history, streamed": func() (string, string, string) {
			id, output, _ := begin("")
			return `,"stream":true`, id, whole(output) + "," + approves(id)
		},
		"the whole history, not stored": func() (string, string, string) {
			id, output, _ := begin("")
			return `,"store":false`, id, whole(output) + "," + approves(id)
		},
		"never stored": func() (string, string, string) {
			id, output, _ := begin(`,"store":false`)
			require.Equal(t, "mcpr_1", id)
			return `,"store":false`, id, whole(output) + "," + approves(id)
		},
		"stored from now on": func() (string, string, string) {
			id, output, _ := begin(`,"store":false`)
			return "", id, whole(output) + "," + approves(id)
		},
		"in a conversation that has others": func() (string, string, string) {
			return `,"conversation":"` + s.begin(user("x"), assistant("y")) + `"`, "mcpr_1",
				asks + "," + approves("mcpr_1")
		},
		"posted to another conversation": func() (string, string, string) {
			id, output, _ := begin("")
			asked, err := json.Marshal(output[1])
			require.NoError(t, err)
			return `,"conversation":"` + s.begin(user("a"), string(asked), approves(id)) + `"`, id, user("go on")
		},
	} {
		more, id, input := of()
		if id != "mcpr_1" {
			require.Regexp(t, "^mcpr_[0-9a-f]{48}$", id, name)
		}
		a := s.do("POST", "/v1/responses", `{"input":[`+input+`]`+more+`}`)
		require.Equal(t, http.StatusOK, a.status, "%s: %s", name, a.raw)
		sent := messagesIn(t, <-m.Bodies)
		require.Equal(t, toEndpoint, named(sent), "%s: %v", name, sent)
		require.NotContains(t, a.raw, "upstream", name)
		output := named(outputOf(t, a))
		require.Len(t, output, 2, "%s: %v", name, output)
		require.Equal(t, "mcp_call "+id, output[1], name)
		if strings.Contains(more, "store") {
			continue
		}
		require.Regexp(t, "^mcp_call mcp_[0-9a-f]{48}$", output[0], name)
		if name == "a conversation" {
			listed := named(s.list(strings.Split(more, `"`)[3], 100))
			require.Equal(t, []string{
				"mcp_approval_request " + id, "mcp_approval_response " + id, "mcp_approval_response " + id,
			}, listed[:3], listed)
		}
	}
}

// Reasoning that a client has from the endpoint itself goes there with its id. What stands twice goes there once.
func TestReasoningOfAnotherServerKeepsItsID(t *testing.T) {
	t.Parallel()
	m, s := behind(t, "responses", func([]string) modeltest.Answer { return modeltest.Answer{Text: "yes"} })
	reasoning := `{"type":"reasoning","id":"rs_theirs","encrypted_content":"sealed","summary":[]}`
	for _, more := range []string{"", `,"store":false`} {
		s.respondTo([]string{reasoning, assistant("so"), reasoning, assistant("so"), user("a")}, more)
		thoughts := 0
		for _, i := range messagesIn(t, <-m.Bodies) {
			if item := i.(map[string]any); item["type"] == "reasoning" {
				require.Equal(t, "rs_theirs", item["id"])
				require.Equal(t, "sealed", item["encrypted_content"])
				thoughts++
			}
		}
		require.Equal(t, 1, thoughts, more)
	}
}

// lookedUp counts the events that are read.
type lookedUp struct {
	answer.Log

	read atomic.Int64
}

// At implements answer.Log.
func (l *lookedUp) At(ctx context.Context, at events.Position) (events.Recorded, bool, error) {
	l.read.Add(1)
	return l.Log.At(ctx, at)
}

// However many ids an input holds, few are looked up to find the session that they are of.
func TestFewIDsOfAnInputAreLookedUp(t *testing.T) {
	t.Parallel()
	log := &lookedUp{}
	s := start(t, answeredAs(answer.Echo{}, func(c *answer.Config) {
		log.Log, c.Log = c.Log, log
	}))
	id := ids(s.list(s.begin(user("q")), 10))[0]
	forged := id[:len(id)-1] + map[bool]string{true: "1", false: "0"}[strings.HasSuffix(id, "0")]
	var input []string
	for range 200 {
		input = append(input, `{"type":"item_reference","id":"ws_theirs"}`,
			`{"type":"message","role":"assistant","content":"x","id":"`+forged+`"}`)
	}
	a := s.do("POST", "/v1/responses", `{"input":[`+strings.Join(input, ",")+`]}`)
	require.Equal(t, http.StatusNotFound, a.status, a.raw)
	require.LessOrEqual(t, log.read.Load(), int64(16))
}
