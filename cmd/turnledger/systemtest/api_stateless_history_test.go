package systemtest_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/prompttest"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// TestStatelessHistory goes through the five test cases of the document on history that
// a client passes with each request.
//
//conformance:s1 s4 s12 s17 s20 "follow-up question"
//conformance:s5 s13 s15 s22 "long conversation"
//conformance:s11 s14 s18 s23 "malformed history"
//conformance:s2 s21 "reference to a previous response"
//conformance:s6 s19 "single message"
func TestStatelessHistory(t *testing.T) {
	t.Parallel()
	p := stack.Shared(t)
	build := func(t *testing.T, message string, history any) map[string]any {
		out := p.BuildContext(t, "client", map[string]any{"message": message, "conversation_history": history,
			"format": "anthropic"})
		raw, err := json.Marshal(out["messages"])
		require.NoError(t, err)
		var messages []json.RawMessage
		require.NoError(t, json.Unmarshal(raw, &messages))
		require.Empty(t, prompttest.Anthropic(messages))
		require.Equal(t, "request", out["source"])
		return out
	}
	entry := func(role, content string) map[string]any {
		return map[string]any{"role": role, "content": content, "thinkingSteps": []any{"x"},
			"entities": map[string]any{}, "elapsedSeconds": 3, "timestamp": "now"}
	}
	t.Run("single message", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"user: What is Kartograph?"},
			stack.MessageLines(build(t, "What is Kartograph?", []any{})["messages"]))
	})
	t.Run("follow-up question", func(t *testing.T) {
		t.Parallel()
		out := build(t, "What about its dependencies?",
			[]any{entry("user", "Who owns the Cincinnati service?"), entry("assistant", "Team Ohio.")})
		require.Equal(t, []any{
			map[string]any{"role": "user", "content": "Who owns the Cincinnati service?"},
			map[string]any{"role": "assistant", "content": "Team Ohio."},
			map[string]any{"role": "user", "content": "What about its dependencies?"},
		}, out["messages"], "what only the client's pages need is not sent")
	})
	t.Run("reference to a previous response", func(t *testing.T) {
		t.Parallel()
		out := build(t, "Tell me more about the first one",
			[]any{entry("user", "List all services"), entry("assistant", "1. Alpha 2. Beta")})
		require.Contains(t, stack.MessageLines(out["messages"]), "assistant: 1. Alpha 2. Beta")
	})
	t.Run("long conversation", func(t *testing.T) {
		t.Parallel()
		var history []any
		for i := range 25 {
			history = append(history, entry([]string{"user", "assistant"}[i%2], fmt.Sprint("m", i)))
		}
		out := build(t, "now", history)
		require.EqualValues(t, 20, out["history_messages"])
		require.Len(t, out["warnings"], 1)
		require.Contains(t, stack.MessageLines(out["messages"]), "assistant: m5")
		require.NotContains(t, stack.MessageLines(out["messages"]), "user: m4")
	})
	t.Run("malformed history", func(t *testing.T) {
		t.Parallel()
		for _, odd := range []any{"text", 7, map[string]any{"role": "user"}, true,
			[]any{nil, 7, "x", []any{}, map[string]any{"role": "user"}, map[string]any{"role": 7, "content": "x"},
				map[string]any{"role": "robot", "content": "x"}, map[string]any{"role": "user", "content": []any{}}}} {
			require.Equal(t, []string{"user: now"}, stack.MessageLines(build(t, "now", odd)["messages"]), "%v", odd)
		}
	})
}
