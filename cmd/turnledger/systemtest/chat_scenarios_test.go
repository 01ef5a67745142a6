package systemtest_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// TestFamilyAssistant goes through the six scenarios of the document on chat memory.
//
//conformance:i17 i78 f2 f8 f10 f14 f15 f17 f18 f20 f21 f22 f23 f25
func TestFamilyAssistant(t *testing.T) {
	t.Parallel()
	model := modeltest.New(t, func(prompt []string) modeltest.Answer {
		if strings.Contains(prompt[len(prompt)-1], "next week") &&
			strings.Contains(strings.Join(prompt, " "), "calendar") {
			return modeltest.Answer{Text: "Your calendar of next week is empty."}
		}
		return modeltest.Answer{Text: "Your calendar has a dentist."}
	})
	dir := stack.DataDir(t)
	env := []string{"TURNLEDGER_MODEL_URL=" + model.URL + "/v1", "TURNLEDGER_MODEL_NAME=m"}
	p := stack.Start(t, env, "serve", "--data-dir", dir, "--roles", "api,context,recent,chat")

	// 1: a follow-up.
	p.Ask(t, "erin", stack.Content("what's on our calendar this week?"))
	require.Equal(t, "Your calendar of next week is empty.",
		p.Ask(t, "erin", stack.Content("what about next week?"))["content"])

	// 2: a workflow of several steps with tools, whose calls and results are kept.
	step := func(request, question string, answer ...map[string]any) {
		out := p.Must(t, http.StatusCreated, http.MethodPost, stack.SessionPath("recipes")+"/turns",
			map[string]any{"request_id": request, "question_neutral": question})
		p.Must(t, http.StatusOK, http.MethodPost,
			stack.SessionPath("recipes")+"/turns/"+out["turn_id"].(string)+"/finalize", map[string]any{
				"answer_neutral": answer[len(answer)-1]["content"], "answer_messages": answer,
			})
	}
	tool := func(id, name, arguments, result, said string) []map[string]any {
		return []map[string]any{
			{"role": "assistant", "content": nil,
				"tool_calls": []any{map[string]any{"id": id, "type": "function",
					"function": map[string]any{"name": name, "arguments": arguments}}}},
			{"role": "tool", "tool_call_id": id, "content": result}, {"role": "assistant", "content": said},
		}
	}
	step("r1", "find me a chicken dinner", tool("c1", "search", `{"q":"chicken"}`, "1: Tikka 2: Pie",
		"1. Tikka 2. Pie")...)
	step("r2", "tell me more about number 1",
		tool("c2", "details", `{"id":1}`, "40 minutes", "Tikka takes 40 minutes.")...)
	out := p.BuildContext(t, "recipes", map[string]any{"message": "save that one", "format": "anthropic"})
	raw, err := json.Marshal(out["messages"])
	require.NoError(t, err)
	require.Contains(t, string(raw), `"input":{"id":1}`)
	require.Contains(t, string(raw), `"content":"40 minutes"`)
	require.EqualValues(t, 8, out["history_messages"])

	// 3: a conversation ends by itself after a silence, and stays in the record.
	hang.Until(t, func() bool {
		out := p.BuildContext(t, "erin", map[string]any{"message": "something else", "idle_timeout": "300ms"})
		return len(out["messages"].([]any)) == 1
	})
	require.EqualValues(t, 2, p.TurnCount(t, "erin"))

	// 4: a restart.
	p.Stop(t)
	p = stack.Start(t, env, "serve", "--data-dir", dir, "--roles", "api,context,recent,chat")
	require.Len(t, p.Context(t, "erin"), 4)

	// 5: users know nothing of each other.
	require.Equal(t, "Your calendar has a dentist.",
		p.Ask(t, "jason", stack.Content("what about next week?"))["content"])

	// 6: messages of the system neither read nor leave history.
	p.Ask(t, "erin", map[string]any{"content": "nightly digest", "user_id": "system"})
	require.Len(t, p.Context(t, "erin"), 4)
	var last []string
	for len(model.Asked) > 0 {
		last = <-model.Asked
	}
	require.Equal(t, []string{"user: nightly digest"}, last)
}
