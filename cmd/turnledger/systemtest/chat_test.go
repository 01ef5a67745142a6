package systemtest_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// A chat with a model, whose answers are sent whole and streamed.
//
//conformance:i43 f16 "an answer is recorded when the client is gone"
func TestChat(t *testing.T) {
	t.Parallel()
	model := stack.NewModel(t)
	p := stack.Serve(t, append(model.Env(), "TURNLEDGER_PARTITIONS=8"), "--roles", "api,context,recent,chat")
	for sent, suffix := range map[string]string{"whole": "", "streamed": "/stream"} {
		for name, test := range map[string]func(t *testing.T, e *editing){
			"edits and second answers are branches": answersInABranch,
			"a refused message leaves nothing":      refusedMessagesLeaveNothing,
			"an edit by another leaves no branch":   editsByOthersLeaveNoBranch,
		} {
			t.Run(name+", "+sent, func(t *testing.T) {
				test(t, edit(t, p, model, strings.ReplaceAll(name+" "+sent, " ", "-"), suffix))
			})
		}
	}
	// In the answer, in the stream, in the answer to the same request again, and in the turn.
	t.Run("an answer that was cut says so", func(t *testing.T) {
		require.Equal(t, "stop", p.Ask(t, "cut", stack.Content("Who is Donald Trump?"))["finish_reason"])
		long := map[string]any{"content": "at length: who?", "request_id": "r"}
		for range 2 {
			require.Equal(t, "length", p.Ask(t, "cut", long)["finish_reason"])
		}
		var last [2]string
		for last = range stream(t.Context(), p, t, "cut", long) {
		}
		require.Contains(t, last[1], `"finish_reason":"length"`)
		turns := waitFinalized(t, p, "cut", 2)
		used := map[string]any{"input_tokens": 12.0, "cached_tokens": 5.0, "output_tokens": 7.0,
			"reasoning_tokens": 3.0}
		require.Equal(t, map[string]any{"usage": used}, turns[0].(map[string]any)["metadata"])
		require.Equal(t, map[string]any{"finish_reason": "length", "usage": used},
			turns[1].(map[string]any)["metadata"])
		explained := p.Done(t, "explain", "cut", turns[1].(map[string]any)["turn_id"].(string))
		require.Contains(t, explained, "turnledger.turn.finalized.v1  (12 tokens in, 7 out)")
	})
	t.Run("an answer is recorded when the client is gone", func(t *testing.T) {
		release := model.Hold()
		ctx, gone := context.WithCancel(t.Context())
		events := stream(ctx, p, t, "gone", stack.Content("slowly: who is Donald Trump?"))
		require.Equal(t, "begun", (<-events)[0])
		require.Equal(t, [2]string{"delta", `{"content":"Donald "}`}, <-events)
		refused := p.Must(t, http.StatusConflict, http.MethodPost, "/v1/threads/gone/messages",
			map[string]any{"content": "who?", "on_pending": "reject"})
		require.Equal(t, "turn_pending", refused["code"])
		require.Regexp(t, "^turn .*, begun 20.*Z, has no answer yet: .* on_pending enqueue or interrupt$",
			refused["detail"])
		gone()
		release()
		turns := waitFinalized(t, p, "gone", 1)
		require.Equal(t, "Donald Trump is an American politician.", turns[0].(map[string]any)["answer_neutral"])
	})
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

// A message at one process interrupts the answer that another one streams. Its request again is told the same. The
// other process speaks another vendor's protocol.
func TestAMessageInterruptsTheAnswerOfAnotherProcess(t *testing.T) {
	t.Parallel()
	model := stack.NewModel(t)
	model.Hold()
	nats := stack.FreeAddress(t)
	a := stack.Serve(t, append(model.Env(), stack.ServeNATS(nats)...), "--roles", "api,context,recent,chat")
	other := append(model.Env(), "TURNLEDGER_MODEL_API=anthropic", "TURNLEDGER_SYSTEM_PROMPT=Be kind.")
	b := stack.Start(t, append(other, stack.JoinNATS(nats)...), "serve", "--roles", "api,context,recent,chat")
	slow := stream(t.Context(), a, t, "i", stack.Content("slowly: who is Donald Trump?"))
	require.Equal(t, "begun", (<-slow)[0])
	require.Equal(t, "delta", (<-slow)[0])
	<-model.Asked
	b.Ask(t, "i", map[string]any{"content": "Who else?", "on_pending": "interrupt"})
	require.Equal(t, []string{"system: Be kind.", "user: slowly: who is Donald Trump?", "assistant: Donald ",
		"user: Who else?"}, <-model.Asked)
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
