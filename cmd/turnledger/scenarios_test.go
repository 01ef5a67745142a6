package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/services/chat/modeltest"
	"github.com/turnledger/turnledger/services/contextbuilder/prompttest"
)

// TestStatelessHistory goes through the five test cases of the document on history that
// a client passes with each request.
func TestStatelessHistory(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "serve", "--data-dir", dataDir(t), "--roles", "api,context,recent")
	build := func(t *testing.T, message string, history any) map[string]any {
		out := p.build(t, "client", map[string]any{"message": message, "conversation_history": history, "format": "anthropic"})
		raw, err := json.Marshal(out["messages"])
		require.NoError(t, err)
		var messages []json.RawMessage
		require.NoError(t, json.Unmarshal(raw, &messages))
		require.Empty(t, prompttest.Anthropic(messages))
		require.Equal(t, "request", out["source"])
		return out
	}
	entry := func(role, content string) map[string]any {
		return map[string]any{"role": role, "content": content, "thinkingSteps": []any{"x"}, "entities": map[string]any{}, "elapsedSeconds": 3, "timestamp": "now"}
	}
	t.Run("single message", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"user: What is Kartograph?"}, lines(build(t, "What is Kartograph?", []any{})["messages"]))
	})
	t.Run("follow-up question", func(t *testing.T) {
		t.Parallel()
		out := build(t, "What about its dependencies?", []any{entry("user", "Who owns the Cincinnati service?"), entry("assistant", "Team Ohio.")})
		require.Equal(t, []any{
			map[string]any{"role": "user", "content": "Who owns the Cincinnati service?"}, map[string]any{"role": "assistant", "content": "Team Ohio."},
			map[string]any{"role": "user", "content": "What about its dependencies?"},
		}, out["messages"], "what only the client's pages need is not sent")
	})
	t.Run("reference to a previous response", func(t *testing.T) {
		t.Parallel()
		out := build(t, "Tell me more about the first one", []any{entry("user", "List all services"), entry("assistant", "1. Alpha 2. Beta")})
		require.Contains(t, lines(out["messages"]), "assistant: 1. Alpha 2. Beta")
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
		require.Contains(t, lines(out["messages"]), "assistant: m5")
		require.NotContains(t, lines(out["messages"]), "user: m4")
	})
	t.Run("malformed history", func(t *testing.T) {
		t.Parallel()
		for _, odd := range []any{"text", 7, map[string]any{"role": "user"}, true, []any{nil, 7, "x", []any{}, map[string]any{"role": "user"}, map[string]any{"role": 7, "content": "x"}, map[string]any{"role": "robot", "content": "x"}, map[string]any{"role": "user", "content": []any{}}}} {
			require.Equal(t, []string{"user: now"}, lines(build(t, "now", odd)["messages"]), "%v", odd)
		}
	})
}

// TestFamilyAssistant goes through the six scenarios of the document on chat memory.
func TestFamilyAssistant(t *testing.T) {
	t.Parallel()
	model := modeltest.New(t, func(prompt []string) modeltest.Answer {
		if strings.Contains(prompt[len(prompt)-1], "next week") && strings.Contains(strings.Join(prompt, " "), "calendar") {
			return modeltest.Answer{Text: "Your calendar of next week is empty."}
		}
		return modeltest.Answer{Text: "Your calendar has a dentist."}
	})
	dir := dataDir(t)
	env := []string{"TURNLEDGER_MODEL_URL=" + model.URL + "/v1", "TURNLEDGER_MODEL_NAME=m"}
	p := start(t, env, "serve", "--data-dir", dir, "--roles", "api,context,recent,chat")

	// 1: a follow-up.
	p.ask(t, "erin", content("what's on our calendar this week?"))
	require.Equal(t, "Your calendar of next week is empty.", p.ask(t, "erin", content("what about next week?"))["content"])

	// 2: a workflow of several steps with tools, whose calls and results are kept.
	step := func(request, question string, answer ...map[string]any) {
		out := p.must(t, http.StatusCreated, http.MethodPost, session("recipes")+"/turns", map[string]any{"request_id": request, "question_neutral": question})
		p.must(t, http.StatusOK, http.MethodPost, session("recipes")+"/turns/"+out["turn_id"].(string)+"/finalize", map[string]any{
			"answer_neutral": answer[len(answer)-1]["content"], "answer_messages": answer,
		})
	}
	tool := func(id, name, arguments, result, said string) []map[string]any {
		return []map[string]any{
			{"role": "assistant", "content": nil, "tool_calls": []any{map[string]any{"id": id, "type": "function", "function": map[string]any{"name": name, "arguments": arguments}}}},
			{"role": "tool", "tool_call_id": id, "content": result}, {"role": "assistant", "content": said},
		}
	}
	step("r1", "find me a chicken dinner", tool("c1", "search", `{"q":"chicken"}`, "1: Tikka 2: Pie", "1. Tikka 2. Pie")...)
	step("r2", "tell me more about number 1", tool("c2", "details", `{"id":1}`, "40 minutes", "Tikka takes 40 minutes.")...)
	out := p.build(t, "recipes", map[string]any{"message": "save that one", "format": "anthropic"})
	raw, err := json.Marshal(out["messages"])
	require.NoError(t, err)
	require.Contains(t, string(raw), `"input":{"id":1}`)
	require.Contains(t, string(raw), `"content":"40 minutes"`)
	require.EqualValues(t, 8, out["history_messages"])

	// 3: a conversation ends by itself after a silence, and stays in the record.
	require.Eventually(t, func() bool {
		out := p.build(t, "erin", map[string]any{"message": "something else", "idle_timeout": "300ms"})
		return len(out["messages"].([]any)) == 1
	}, 30*time.Second, 50*time.Millisecond)
	require.EqualValues(t, 2, p.turnsOf(t, "erin"))

	// 4: a restart.
	p.stop(t)
	p = start(t, env, "serve", "--data-dir", dir, "--roles", "api,context,recent,chat")
	require.Len(t, p.context(t, "erin"), 4)

	// 5: users know nothing of each other.
	require.Equal(t, "Your calendar has a dentist.", p.ask(t, "jason", content("what about next week?"))["content"])

	// 6: messages of the system neither read nor leave history.
	p.ask(t, "erin", map[string]any{"content": "nightly digest", "user_id": "system"})
	require.Len(t, p.context(t, "erin"), 4)
	var last []string
	for len(model.Asked) > 0 {
		last = <-model.Asked
	}
	require.Equal(t, []string{"user: nightly digest"}, last)
}

// TestAnAnswerLongerThanTheStopIsToldOf ends the server while a model goes on and on: it
// ends by itself, well, and the client is told that its turn is pending.
func TestAnAnswerLongerThanTheStopIsToldOf(t *testing.T) {
	t.Parallel()
	model := newScripted(t)
	model.hold()
	dir := dataDir(t)
	p := start(t, model.env(), "serve", "--data-dir", dir, "--roles", "api,context,recent,chat")
	stream := p.stream(t.Context(), t, "s", content("slowly: who is Donald Trump?"))
	require.Equal(t, "begun", (<-stream)[0])
	require.Equal(t, "delta", (<-stream)[0])
	p.stop(t)
	last := <-stream
	require.Equal(t, "error", last[0])
	require.Contains(t, last[1], `"model_failed"`)
	p = start(t, model.env(), "serve", "--data-dir", dir, "--roles", "api,context,recent,chat")
	require.EqualValues(t, 1, p.must(t, http.StatusOK, http.MethodGet, session("s"), nil)["pending"])
}

// TestNoTurnIsLostWhenTheServerEnds streams 50 threads at once, and ends the server in
// the middle: with SIGTERM every answer is recorded, with kill -9 every question that was
// begun is there, pending. What was answered before is there in both cases.
func TestNoTurnIsLostWhenTheServerEnds(t *testing.T) {
	t.Parallel()
	const threads = 50
	for name, signal := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "kill -9": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model := newScripted(t)
			release := model.hold()
			dir := dataDir(t)
			p := start(t, model.env(), "serve", "--data-dir", dir, "--roles", "api,context,recent,chat")
			var ends sync.WaitGroup
			begun := make(chan struct{}, threads)
			for i := range threads {
				p.ask(t, fmt.Sprint("t", i), map[string]any{"content": "Who is he?", "request_id": "first"})
			}
			for i := range threads {
				events := p.stream(context.WithoutCancel(t.Context()), t, fmt.Sprint("t", i), map[string]any{"content": "slowly: who is Donald Trump?", "request_id": "r"})
				ends.Go(func() {
					for e := range events {
						if e[0] == "delta" && e[1] == `{"content":"Donald "}` {
							begun <- struct{}{}
						}
					}
				})
			}
			for range threads {
				<-begun
			}
			require.NoError(t, p.cmd.Process.Signal(signal))
			if signal == syscall.SIGTERM {
				release()
			}
			_ = p.cmd.Wait()
			ends.Wait()
			p = start(t, model.env(), "serve", "--data-dir", dir, "--roles", "api,context,recent,chat")
			for i := range threads {
				s := p.must(t, http.StatusOK, http.MethodGet, session(fmt.Sprint("t", i)), nil)
				require.EqualValues(t, 2, s["turns"], "%v", s)
				answered := p.must(t, http.StatusOK, http.MethodGet, session(fmt.Sprint("t", i))+"/history", nil)["history"].([]any)
				require.Equal(t, map[string]any{"question_neutral": "Who is he?", "answer_neutral": "Donald Trump is an American politician."}, answered[0], "acknowledged")
				want := 0
				if signal == syscall.SIGKILL {
					want = 1
				}
				require.EqualValues(t, want, s["pending"], "%v", s)
			}
			if signal == syscall.SIGKILL {
				// The same request again has its answer.
				model.Script(func([]string) modeltest.Answer { return modeltest.Answer{Text: "At last."} })
				out := p.ask(t, "t0", map[string]any{"content": "slowly: who is Donald Trump?", "request_id": "r"})
				require.Equal(t, "At last.", out["content"])
			}
		})
	}
}
