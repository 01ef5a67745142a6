package systemtest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
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
		require.Less(t, time.Since(began), hang.Limit)
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

// editing is a chat with a thread of two answered turns.
type editing struct {
	*stack.Process
	model                 *stack.Model
	thread, first, second string
	// send sends a message, and returns what the last event or the body says.
	send func(t *testing.T, body map[string]any) map[string]any
	path string
}

// edit begins such a thread, whose messages are answered whole, or streamed.
func edit(t *testing.T, p *stack.Process, model *stack.Model, thread, suffix string) *editing {
	t.Helper()
	e := &editing{Process: p, model: model, thread: thread, path: "/v1/threads/" + thread + "/messages" + suffix}
	e.first = e.Ask(t, thread, stack.Content("Who is Donald Trump?"))["turn_id"].(string)
	e.second = e.Ask(t, thread, stack.Content("who are his children"))["turn_id"].(string)
	<-model.Asked
	<-model.Asked
	e.send = func(t *testing.T, body map[string]any) map[string]any {
		t.Helper()
		if suffix == "" {
			return e.Ask(t, thread, body)
		}
		var last [2]string
		for last = range stream(t.Context(), p, t, thread, body) {
		}
		require.Equal(t, "done", last[0], last[1])
		var out map[string]any
		require.NoError(t, json.Unmarshal([]byte(last[1]), &out))
		return out
	}
	return e
}

// An edited message, and one that is answered anew, are answered in branches of the thread, which stays as it was.
func answersInABranch(t *testing.T, e *editing) {
	t.Helper()
	before := e.Get(t, stack.SessionPath(e.thread)+"/turns?status=all")
	edit := map[string]any{"content": "who are his wives", "edits_turn_id": e.second, "request_id": "e"}
	edited := e.send(t, edit)
	require.Equal(t, []string{"user: Who is Donald Trump?", "assistant: Donald Trump is an American politician.",
		"user: who are his wives"}, <-e.model.Asked, "the edited turn is not in the prompt")
	again := map[string]any{"regenerates_turn_id": e.second, "request_id": "r"}
	anew := e.send(t, again)
	require.Equal(t, []string{"user: Who is Donald Trump?", "assistant: Donald Trump is an American politician.",
		"user: who are his children"}, <-e.model.Asked)
	require.NotEqual(t, edited["thread_id"], anew["thread_id"])

	for _, c := range []struct {
		body, answer map[string]any
		question     string
	}{{edit, edited, "who are his wives"}, {again, anew, "who are his children"}} {
		branch := c.answer["thread_id"].(string)
		require.NotEqual(t, e.thread, branch)
		repeated := e.send(t, c.body)
		for _, same := range []string{"thread_id", "turn_id", "content", "position"} {
			require.Equal(t, c.answer[same], repeated[same], same)
		}
		require.Equal(t, true, repeated["duplicate"])
		require.Equal(t, map[string]any{"session_id": e.thread, "turn_id": e.first},
			e.Get(t, stack.SessionPath(branch))["forked_from"])
		turns := e.Get(t, stack.SessionPath(branch)+"/turns")["turns"].([]any)
		require.Len(t, turns, 2)
		last := turns[1].(map[string]any)
		require.Equal(t, []any{branch, c.answer["turn_id"], c.question, c.answer["content"], false},
			[]any{last["session_id"], last["turn_id"], last["question_neutral"], last["answer_neutral"],
				last["inherited"]})
	}
	require.Empty(t, e.model.Asked, "a repeated message does not ask the model")
	require.Equal(t, before, e.Get(t, stack.SessionPath(e.thread)+"/turns?status=all"), "the thread is as it was")

	// Sent again after the turn was redacted, a message still has the answer of its branch; a new one is refused.
	e.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath(e.thread)+"/turns/"+e.second+"/redact", nil)
	for _, c := range []struct{ body, answer map[string]any }{{edit, edited}, {again, anew}} {
		require.Equal(t, c.answer["content"], e.send(t, c.body)["content"])
	}
	late := map[string]any{"regenerates_turn_id": e.second, "request_id": "late"}
	require.Equal(t, "turn_redacted", e.Must(t, http.StatusConflict, http.MethodPost, e.path, late)["code"])
	require.Empty(t, e.model.Asked)

	// A branch is a thread like any other, also for an edit of a turn that it shares.
	e.Ask(t, edited["thread_id"].(string), stack.Content("and then?"))
	require.Len(t, <-e.model.Asked, 5)
	deeper := e.Ask(t, edited["thread_id"].(string), map[string]any{"content": "Who?", "edits_turn_id": e.first})
	require.Equal(t, []string{"user: Who?"}, <-e.model.Asked)
	require.NotEqual(t, edited["thread_id"], deeper["thread_id"])
}

// A message that is refused leaves nothing in the log.
func refusedMessagesLeaveNothing(t *testing.T, e *editing) {
	t.Helper()
	gone := e.first
	e.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath(e.thread)+"/turns/"+gone+"/redact", nil)
	image := e.Must(t, http.StatusCreated, http.MethodPost, stack.SessionPath(e.thread)+"/turns", map[string]any{
		"request_id": "image", "answer_neutral": "A cat.", "question_messages": []any{map[string]any{"role": "user",
			"content": []any{map[string]any{"type": "image_url", "image_url": map[string]any{
				"url": "https://example.com/cat.png"}}}}}})["turn_id"]
	end := e.head(t)
	unknown := "00000000-0000-5000-8000-000000000001"
	for name, c := range map[string]struct {
		body   map[string]any
		status int
		code   string
	}{
		"both": {map[string]any{"edits_turn_id": e.second, "regenerates_turn_id": e.second}, 422,
			"invalid_argument"},
		"a question without text": {map[string]any{"regenerates_turn_id": image, "content": ""}, 422,
			"invalid_argument"},
		"content of two": {map[string]any{"regenerates_turn_id": e.second}, 422, "invalid_argument"},
		"no content":     {map[string]any{"edits_turn_id": e.second, "content": ""}, 422, "invalid_argument"},
		"a bad window":   {map[string]any{"edits_turn_id": e.second, "max_messages": 1}, 422, "invalid_argument"},
		"a bad window of one asked anew": {map[string]any{"regenerates_turn_id": e.second, "content": "",
			"max_messages": 1}, 422, "invalid_argument"},
		"a bad silence": {map[string]any{"edits_turn_id": e.second, "idle_timeout": "-1s"}, 422,
			"invalid_argument"},
		"a bad policy": {map[string]any{"edits_turn_id": e.second, "on_pending": "x"}, 422, "invalid_argument"},
		"redacted":     {map[string]any{"edits_turn_id": gone}, 409, "turn_redacted"},
		"redacted and asked anew": {map[string]any{"regenerates_turn_id": gone, "content": ""}, 409,
			"turn_redacted"},
		"unknown": {map[string]any{"edits_turn_id": unknown}, 404, "turn_not_found"},
		"unknown and asked anew": {map[string]any{"regenerates_turn_id": unknown, "content": ""}, 404,
			"turn_not_found"},
		"the system": {map[string]any{"edits_turn_id": e.second, "user_id": "system"}, 422,
			"invalid_argument"},
		"no edit, and a bad window":   {map[string]any{"max_messages": 1}, 422, "invalid_argument"},
		"no edit, and a bad bound":    {map[string]any{"max_tokens": -1}, 422, "invalid_argument"},
		"no edit, and a bad language": {map[string]any{"language": "both"}, 422, "invalid_argument"},
		"no edit, and a bad policy":   {map[string]any{"on_pending": "maybe"}, 422, "invalid_argument"},
		"no edit, and a bad silence":  {map[string]any{"idle_timeout": "soon"}, 422, "invalid_argument"},
		"no edit, and a bad user":     {map[string]any{"user_id": ".."}, 422, "invalid_argument"},
		"a member that there is not":  {map[string]any{"bogus": true}, 422, "invalid_argument"},
	} {
		body := map[string]any{"content": "c", "request_id": name}
		maps.Copy(body, c.body)
		if body["content"] == "" {
			delete(body, "content")
		}
		require.Equal(t, c.code, e.Must(t, c.status, http.MethodPost, e.path, body)["code"], name)
		require.Equal(t, end, e.head(t), "%s: something was recorded", name)
	}
	require.Empty(t, e.model.Asked)
}

// head returns how far the log is.
func (e *editing) head(t *testing.T) (all []any) {
	t.Helper()
	for _, p := range e.Get(t, "/v1/projections")["projections"].([]any) {
		all = append(all, p.(map[string]any)["head"])
	}
	require.NotEmpty(t, all)
	return all
}

// Who may not speak in a thread leaves no branch of it, only the attempt; nor does an identity that is gone.
func editsByOthersLeaveNoBranch(t *testing.T, e *editing) {
	t.Helper()
	refused := func(user, request string, status int, code string) {
		for _, body := range []map[string]any{
			{"content": "c", "edits_turn_id": e.second}, {"regenerates_turn_id": e.second},
		} {
			body["user_id"], body["request_id"] = user, request
			require.Equal(t, code, e.Must(t, status, http.MethodPost, e.path, body)["code"])
		}
		branch := e.Get(t, stack.SessionPath(events.BranchID(e.thread, request)))
		require.Equal(t, false, branch["found"], "%s: a branch was made", code)
	}
	e.Must(t, http.StatusAccepted, http.MethodDelete, "/v1/identities/eve", nil)
	refused("eve", "of eve", http.StatusGone, "session_erased")
	require.Nil(t, e.Get(t, stack.SessionPath(e.thread))["identity_id"])

	e.Must(t, http.StatusOK, http.MethodPut, stack.SessionPath(e.thread)+"/identity",
		map[string]any{"identity_id": "ada"})
	refused("bob", "of bob", http.StatusConflict, "session_linked_elsewhere")
	_, log, _ := e.Run(t, "replay", "--session", e.thread)
	require.Contains(t, log, events.TypeLinkRefused, "the attempt is kept")
	require.Empty(t, e.model.Asked)

	mine := e.send(t, map[string]any{"content": "c", "edits_turn_id": e.second, "user_id": "ada"})
	<-e.model.Asked
	require.Equal(t, "ada", e.Get(t, stack.SessionPath(mine["thread_id"].(string)))["identity_id"])
}

// stream opens a stream and returns its events; it ends with ctx.
func stream(ctx context.Context, p *stack.Process, t testing.TB, thread string, body map[string]any) <-chan [2]string {
	t.Helper()
	raw := must.Get(json.Marshal(body))(t)
	req := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, p.URL+"/v1/threads/"+thread+"/messages/stream",
		bytes.NewReader(raw)))(t)
	resp := must.Get(http.DefaultClient.Do(req))(t)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	out := make(chan [2]string, 100)
	go func() {
		defer close(out)
		defer func() { _ = resp.Body.Close() }()
		name := ""
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if after, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				name = after
			}
			if after, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				out <- [2]string{name, after}
			}
		}
	}()
	return out
}

// waitFinalized waits until a session has so many answers.
func waitFinalized(t testing.TB, p *stack.Process, id string, n int) []any {
	t.Helper()
	var turns []any
	hang.Until(t, func() bool {
		turns = p.Get(t, stack.SessionPath(id)+"/turns")["turns"].([]any)
		return len(turns) == n
	})
	return turns
}

// TestNoTurnIsLostWhenTheServerEnds streams 50 threads at once, and ends the server in
// the middle: with SIGTERM every answer is recorded, with kill -9 every question that was
// begun is there, pending. What was answered before is there in both cases.
//
//conformance:i42 f2
func TestNoTurnIsLostWhenTheServerEnds(t *testing.T) {
	t.Parallel()
	const threads = 50
	for name, signal := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "kill -9": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model := stack.NewModel(t)
			release := model.Hold()
			dir := stack.DataDir(t)
			p := stack.Start(t, model.Env(), "serve", "--data-dir", dir, "--roles", "api,context,recent,chat")
			var ends sync.WaitGroup
			begun := make(chan struct{}, threads)
			for i := range threads {
				p.Ask(t, fmt.Sprint("t", i), map[string]any{"content": "Who is he?", "request_id": "first"})
			}
			for i := range threads {
				events := stream(context.WithoutCancel(t.Context()), p, t, fmt.Sprint("t", i),
					map[string]any{"content": "slowly: who is Donald Trump?", "request_id": "r"})
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
			require.NoError(t, p.Cmd.Process.Signal(signal))
			if signal == syscall.SIGTERM {
				release()
			}
			_ = p.Cmd.Wait()
			ends.Wait()
			p = stack.Start(t, model.Env(), "serve", "--data-dir", dir, "--roles", "api,context,recent,chat")
			for i := range threads {
				s := p.Get(t, stack.SessionPath(fmt.Sprint("t", i)))
				require.EqualValues(t, 2, s["turns"], "%v", s)
				answered := p.Get(t, stack.SessionPath(fmt.Sprint("t", i))+"/history")["history"].([]any)
				require.Equal(t, map[string]any{"question_neutral": "Who is he?",
					"answer_neutral": "Donald Trump is an American politician."}, answered[0], "acknowledged")
				want := 0
				if signal == syscall.SIGKILL {
					want = 1
				}
				require.EqualValues(t, want, s["pending"], "%v", s)
			}
			if signal == syscall.SIGKILL {
				// The same request again has its answer.
				model.Script(func([]string) modeltest.Answer { return modeltest.Answer{Text: "At last."} })
				out := p.Ask(t, "t0", map[string]any{"content": "slowly: who is Donald Trump?", "request_id": "r"})
				require.Equal(t, "At last.", out["content"])
			}
		})
	}
}

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
	raw := must.Get(json.Marshal(out["messages"]))(t)
	must.Contain(t, string(raw), `"input":{"id":1}`, `"content":"40 minutes"`)
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
