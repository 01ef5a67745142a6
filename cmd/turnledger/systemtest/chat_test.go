package systemtest_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// A follow-up question is answered from the conversation, end to end. Turnledger was made because others forget it.
//
//conformance:i43 f13 f15 f17 s24
func TestFollowUpQuestionIsAnsweredFromTheConversation(t *testing.T) {
	t.Parallel()
	model := stack.NewModel(t)
	p := stack.Serve(t, model.Env(), "--roles", "api,context,recent,chat")
	first := p.Ask(t, "new", stack.Content("Who is Donald Trump?"))
	thread := first["thread_id"].(string)
	require.NotEqual(t, "new", thread)
	second := p.Ask(t, thread, stack.Content("who are his children"))
	require.Equal(t, "Don Jr., Ivanka, Eric, Tiffany and Barron.", second["content"])
	require.Equal(t, []string{"user: Who is Donald Trump?"}, <-model.Asked)
	require.Equal(t, []string{"user: Who is Donald Trump?", "assistant: Donald Trump is an American politician.",
		"user: who are his children"}, <-model.Asked)

	// The same request again is answered from the log, and the model is not asked.
	body := map[string]any{"content": "once", "request_id": "r"}
	once := p.Ask(t, thread, body)
	require.Equal(t, false, once["duplicate"])
	<-model.Asked
	again := p.Ask(t, thread, body)
	require.Equal(t, true, again["duplicate"])
	require.Equal(t, once["position"], again["position"])
	require.Equal(t, "Donald Trump is an American politician.", again["content"])

	// The system is answered, but neither reads nor leaves history.
	p.Ask(t, thread, map[string]any{"content": "nightly", "user_id": "system"})
	require.Equal(t, []string{"user: nightly"}, <-model.Asked)
	require.Len(t, p.Context(t, thread), 6)
	require.Empty(t, model.Asked)
}

// When a model fails, its turn stays pending: the question is in the next prompt, and holds up no later message.
//
//conformance:i42
func TestModelThatFailsLeavesTheTurnPending(t *testing.T) {
	t.Parallel()
	model := stack.NewModel(t)
	p := stack.Serve(t, append(model.Env(), "TURNLEDGER_MODEL_SILENCE=3s"), "--roles", "api,context,recent,chat")
	for _, how := range []string{"fail", "broken"} {
		out := p.Must(t, http.StatusBadGateway, http.MethodPost, "/v1/threads/"+how+"/messages",
			map[string]any{"content": how + " please", "request_id": "r"})
		require.Equal(t, "model_failed", out["code"])
		<-model.Asked
		require.EqualValues(t, 1, p.Get(t, stack.SessionPath(how))["pending"])
		began := time.Now()
		p.Ask(t, how, map[string]any{"content": "Who is Donald Trump?", "on_pending": "reject"})
		require.Less(t, time.Since(began), 30*time.Second)
		require.Equal(t, []string{"user: " + how + " please", "user: Who is Donald Trump?"}, <-model.Asked)
	}
	require.NotContains(t, p.Log.String(), "please")
	p.WaitLog(t, "the endpoint answered 400")
	p.WaitLog(t, "the endpoint's answer is broken")
	model.Hold()
	p.Must(t, http.StatusBadGateway, http.MethodPost, "/v1/threads/silent/messages", stack.Content("slowly"))
	p.WaitLog(t, "fell silent")
}

// TestAnswerIsRecordedWhenTheClientIsGone ends the client in the middle of a stream.
//
//conformance:i43 f16
func TestAnswerIsRecordedWhenTheClientIsGone(t *testing.T) {
	t.Parallel()
	model := stack.NewModel(t)
	release := model.Hold()
	p := stack.Serve(t, model.Env(), "--roles", "api,context,recent,chat")
	ctx, gone := context.WithCancel(t.Context())
	events := stream(ctx, p, t, "s", stack.Content("slowly: who is Donald Trump?"))
	require.Equal(t, "begun", (<-events)[0])
	require.Equal(t, [2]string{"delta", `{"content":"Donald "}`}, <-events)
	refused := p.Must(t, http.StatusConflict, http.MethodPost, "/v1/threads/s/messages",
		map[string]any{"content": "who?", "on_pending": "reject"})
	require.Equal(t, "turn_pending", refused["code"])
	require.Regexp(t, "^turn .*, begun 20.*Z, has no answer yet: .* on_pending enqueue or interrupt$",
		refused["detail"])
	gone()
	release()
	turns := waitFinalized(t, p, "s", 1)
	require.Equal(t, "Donald Trump is an American politician.", turns[0].(map[string]any)["answer_neutral"])
}

// A message at one process interrupts the answer that another one streams. Its request again is told the same.
func TestAMessageInterruptsTheAnswerOfAnotherProcess(t *testing.T) {
	t.Parallel()
	model := stack.NewModel(t)
	model.Hold()
	nats := stack.FreeAddress(t)
	a := stack.Serve(t, append(model.Env(), stack.ServeNATS(nats)...), "--roles", "api,context,recent,chat")
	b := stack.Start(t, append(model.Env(), stack.JoinNATS(nats)...), "serve", "--roles", "api,context,recent,chat")
	slow := stream(t.Context(), a, t, "i", stack.Content("slowly: who is Donald Trump?"))
	require.Equal(t, "begun", (<-slow)[0])
	require.Equal(t, "delta", (<-slow)[0])
	b.Ask(t, "i", map[string]any{"content": "Who else?", "on_pending": "interrupt"})
	var last [2]string
	for last = range slow {
	}
	require.Equal(t, "done", last[0])
	require.Contains(t, last[1], `"interrupted":true`)
	first := waitFinalized(t, a, "i", 2)[0].(map[string]any)
	require.Equal(t, "Donald ", first["answer_neutral"])
	again := b.Ask(t, "i",
		map[string]any{"content": "slowly: who is Donald Trump?", "request_id": first["request_id"]})
	require.Equal(t, []any{true, true, "interrupted"},
		[]any{again["duplicate"], again["interrupted"], again["finish_reason"]}, "as it was told at first")
}

// An answer that the model cut off has a finish_reason that says so: in the answer, in the stream, in the answer to the
// same request again, and in the turn.
func TestAnAnswerThatWasCutSaysSo(t *testing.T) {
	t.Parallel()
	p := stack.Serve(t, stack.NewModel(t).Env(), "--roles", "api,context,recent,chat")
	require.Equal(t, "stop", p.Ask(t, "s", stack.Content("Who is Donald Trump?"))["finish_reason"])
	long := map[string]any{"content": "at length: who?", "request_id": "r"}
	for range 2 {
		require.Equal(t, "length", p.Ask(t, "s", long)["finish_reason"])
	}
	var last [2]string
	for last = range stream(t.Context(), p, t, "s", long) {
	}
	require.Contains(t, last[1], `"finish_reason":"length"`)
	turns := waitFinalized(t, p, "s", 2)
	used := map[string]any{"input_tokens": 12.0, "cached_tokens": 5.0, "output_tokens": 7.0, "reasoning_tokens": 3.0}
	require.Equal(t, map[string]any{"usage": used}, turns[0].(map[string]any)["metadata"])
	require.Equal(t, map[string]any{"finish_reason": "length", "usage": used}, turns[1].(map[string]any)["metadata"])
	code, explained, said := p.Run(t, "explain", "s", turns[1].(map[string]any)["turn_id"].(string))
	require.Zero(t, code, said)
	require.Contains(t, explained, "turnledger.turn.finalized.v1  (12 tokens in, 7 out)")
}

// TestEchoAnswersWithoutAKey holds that dev says that it is no real model.
//
//conformance:i36
func TestEchoAnswersWithoutAKey(t *testing.T) {
	t.Parallel()
	p := stack.Start(t, nil, "dev", "--data-dir", stack.DataDir(t))
	hang.Until(t, func() bool { return strings.Contains(p.Out.String(), "an echo") })
	require.Contains(t, p.Out.String(), p.URL+"/console/", "it stands above the model")
	out := p.Must(t, http.StatusOK, http.MethodPost, "/v1/chat", stack.Content("hello"))
	require.Equal(t, "echo", out["model"])
	require.Contains(t, out["content"], "no model is configured")
	require.Contains(t, out["content"], "You said: hello")
}

// The other vendor's protocol.
func TestChatWithAnthropic(t *testing.T) {
	t.Parallel()
	model := stack.NewModel(t)
	p := stack.Serve(t, append(model.Env(), "TURNLEDGER_MODEL_API=anthropic", "TURNLEDGER_SYSTEM_PROMPT=Be kind."),
		"--roles", "api,context,recent,chat")
	p.Ask(t, "s", stack.Content("Who is Donald Trump?"))
	<-model.Asked
	require.Equal(t, "Don Jr., Ivanka, Eric, Tiffany and Barron.",
		p.Ask(t, "s", stack.Content("who are his children"))["content"])
	require.Equal(t, []string{"system: Be kind.", "user: Who is Donald Trump?",
		"assistant: Donald Trump is an American politician.", "user: who are his children"}, <-model.Asked)
}
