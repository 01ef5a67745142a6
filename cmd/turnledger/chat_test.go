package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/services/chat/modeltest"
)

// scripted is a model server that answers from the prompt that it is given.
type scripted struct {
	*modeltest.Server
	mu sync.Mutex
	// held, where not nil, keeps an answer to "slowly" after its first word until it is
	// closed.
	held chan struct{}
}

func newScripted(t testing.TB) *scripted {
	s := &scripted{}
	s.Server = modeltest.New(t, s.answer)
	return s
}

// hold lets answers to "slowly" wait from now on, until what it gives back is called.
func (s *scripted) hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(chan struct{})
	s.held = held
	return func() { close(held) }
}

func (s *scripted) env() []string {
	return []string{"TURNLEDGER_MODEL_URL=" + s.URL + "/v1", "TURNLEDGER_MODEL_NAME=scripted"}
}

func (s *scripted) answer(prompt []string) (a modeltest.Answer) {
	last := prompt[len(prompt)-1]
	a.Text = "Donald Trump is an American politician."
	switch {
	case strings.Contains(last, "children") && strings.Contains(strings.Join(prompt[:len(prompt)-1], "\n"), "Donald Trump is"):
		a.Text = "Don Jr., Ivanka, Eric, Tiffany and Barron."
	case strings.Contains(last, "children"):
		a.Text = "The children of John Doe."
	}
	if strings.Contains(last, "fail") {
		a.Status = http.StatusBadRequest
	}
	if strings.Contains(last, "slowly") {
		s.mu.Lock()
		a.Hold = s.held
		s.mu.Unlock()
	}
	a.Malformed = strings.Contains(last, "broken")
	a.Long = strings.Contains(last, "at length")
	return a
}

func (p *process) ask(t testing.TB, thread string, body map[string]any) map[string]any {
	t.Helper()
	return p.must(t, http.StatusOK, http.MethodPost, "/v1/threads/"+thread+"/messages", body)
}

func content(s string) map[string]any { return map[string]any{"content": s} }

// TestFollowUpQuestionIsAnsweredFromTheConversation is the bug that the product exists
// against, end to end.
func TestFollowUpQuestionIsAnsweredFromTheConversation(t *testing.T) {
	t.Parallel()
	model := newScripted(t)
	p := start(t, model.env(), "serve", "--data-dir", dataDir(t), "--roles", "api,context,recent,chat")
	first := p.ask(t, "new", content("Who is Donald Trump?"))
	thread := first["thread_id"].(string)
	require.NotEqual(t, "new", thread)
	second := p.ask(t, thread, content("who are his children"))
	require.Equal(t, "Don Jr., Ivanka, Eric, Tiffany and Barron.", second["content"])
	require.Equal(t, []string{"user: Who is Donald Trump?"}, <-model.Asked)
	require.Equal(t, []string{"user: Who is Donald Trump?", "assistant: Donald Trump is an American politician.", "user: who are his children"}, <-model.Asked)

	// The same request again is answered from the log, and the model is not asked.
	body := map[string]any{"content": "once", "request_id": "r"}
	once := p.ask(t, thread, body)
	require.Equal(t, false, once["duplicate"])
	<-model.Asked
	again := p.ask(t, thread, body)
	require.Equal(t, true, again["duplicate"])
	require.Equal(t, once["position"], again["position"])
	require.Equal(t, "Donald Trump is an American politician.", again["content"])

	// The system is answered, but neither reads nor leaves history.
	p.ask(t, thread, map[string]any{"content": "nightly", "user_id": "system"})
	require.Equal(t, []string{"user: nightly"}, <-model.Asked)
	require.Len(t, p.context(t, thread), 6)
	require.Empty(t, model.Asked)
}

// TestModelThatFailsLeavesTheTurnPending holds that its question stands in the next
// prompt, and that it holds up nobody.
func TestModelThatFailsLeavesTheTurnPending(t *testing.T) {
	t.Parallel()
	model := newScripted(t)
	p := start(t, model.env(), "serve", "--data-dir", dataDir(t), "--roles", "api,context,recent,chat")
	for _, how := range []string{"fail", "broken"} {
		out := p.must(t, http.StatusBadGateway, http.MethodPost, "/v1/threads/"+how+"/messages", map[string]any{"content": how + " please", "request_id": "r"})
		require.Equal(t, "model_failed", out["code"])
		<-model.Asked
		require.EqualValues(t, 1, p.must(t, http.StatusOK, http.MethodGet, session(how), nil)["pending"])
		began := time.Now()
		p.ask(t, how, map[string]any{"content": "Who is Donald Trump?", "on_pending": "reject"})
		require.Less(t, time.Since(began), 30*time.Second)
		require.Equal(t, []string{"user: " + how + " please", "user: Who is Donald Trump?"}, <-model.Asked)
	}
	require.NotContains(t, p.log.String(), "please")
	p.says(t, "the endpoint answered 400")
	p.says(t, "the endpoint's answer is broken")
}

// stream opens a stream and gives its events; it ends with ctx.
func (p *process) stream(ctx context.Context, t testing.TB, thread string, body map[string]any) <-chan [2]string {
	t.Helper()
	raw, err := json.Marshal(body)
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/v1/threads/"+thread+"/messages/stream", bytes.NewReader(raw))
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
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

// finalized waits until a session has so many answers.
func (p *process) finalized(t testing.TB, id string, n int) []any {
	t.Helper()
	var turns []any
	require.Eventually(t, func() bool {
		turns = p.must(t, http.StatusOK, http.MethodGet, session(id)+"/turns", nil)["turns"].([]any)
		return len(turns) == n
	}, 20*time.Second, 20*time.Millisecond)
	return turns
}

// TestAnswerIsRecordedWhenTheClientIsGone ends the client in the middle of a stream.
func TestAnswerIsRecordedWhenTheClientIsGone(t *testing.T) {
	t.Parallel()
	model := newScripted(t)
	release := model.hold()
	p := start(t, model.env(), "serve", "--data-dir", dataDir(t), "--roles", "api,context,recent,chat")
	ctx, gone := context.WithCancel(t.Context())
	events := p.stream(ctx, t, "s", content("slowly: who is Donald Trump?"))
	require.Equal(t, "begun", (<-events)[0])
	require.Equal(t, [2]string{"delta", `{"content":"Donald "}`}, <-events)
	gone()
	release()
	turns := p.finalized(t, "s", 1)
	require.Equal(t, "Donald Trump is an American politician.", turns[0].(map[string]any)["answer_neutral"])
}

// TestSecondMessageWhileOneIsPending goes through the policies, over two processes on
// one log.
func TestSecondMessageWhileOneIsPending(t *testing.T) {
	t.Parallel()
	model := newScripted(t)
	release := model.hold()
	nats := freeAddress(t)
	a := start(t, append(model.env(), "TURNLEDGER_NATS_LISTEN="+nats, "TURNLEDGER_SYNC=always"), "serve", "--data-dir", dataDir(t), "--roles", "api,context,recent,chat")
	b := start(t, append(model.env(), "TURNLEDGER_NATS_URL=nats://"+nats, "TURNLEDGER_NATS_LISTEN="), "serve", "--roles", "api,context,recent,chat")

	slow := a.stream(t.Context(), t, "s", content("slowly: who is Donald Trump?"))
	var begun map[string]string
	require.NoError(t, json.Unmarshal([]byte((<-slow)[1]), &begun))
	require.Equal(t, "delta", (<-slow)[0])
	out := b.must(t, http.StatusConflict, http.MethodPost, "/v1/threads/s/messages", map[string]any{"content": "who?", "on_pending": "reject"})
	require.Equal(t, "turn_pending", out["code"])
	require.Regexp(t, "^turn "+begun["turn_id"]+", begun 20.*Z, has no answer yet: .* on_pending enqueue or interrupt$", out["detail"])
	require.EqualValues(t, 1, b.must(t, http.StatusOK, http.MethodGet, session("s"), nil)["turns"])

	queued := b.stream(t.Context(), t, "s", content("who are his children"))
	require.Equal(t, "begun", (<-queued)[0])
	release()
	var last [2]string
	for last = range queued {
	}
	require.Equal(t, "done", last[0])
	require.Contains(t, last[1], "Ivanka")
	a.finalized(t, "s", 2)

	model.hold()
	slow = a.stream(t.Context(), t, "i", content("slowly: who is Donald Trump?"))
	require.Equal(t, "begun", (<-slow)[0])
	require.Equal(t, "delta", (<-slow)[0])
	b.ask(t, "i", map[string]any{"content": "Who else?", "on_pending": "interrupt"})
	for last = range slow {
	}
	require.Equal(t, "done", last[0])
	require.Contains(t, last[1], `"interrupted":true`)
	turns := a.finalized(t, "i", 2)
	require.Equal(t, "Donald ", turns[0].(map[string]any)["answer_neutral"])
	again := b.ask(t, "i", map[string]any{"content": "slowly: who is Donald Trump?", "request_id": turns[0].(map[string]any)["request_id"]})
	require.Equal(t, []any{true, true, "interrupted"}, []any{again["duplicate"], again["interrupted"], again["finish_reason"]}, "as it was told at first")
}

// TestAnAnswerThatWasCutSaysSo: in the answer, in the stream, to who asks again, and on record.
func TestAnAnswerThatWasCutSaysSo(t *testing.T) {
	t.Parallel()
	p := start(t, newScripted(t).env(), "serve", "--data-dir", dataDir(t), "--roles", "api,context,recent,chat")
	require.Equal(t, "stop", p.ask(t, "s", content("Who is Donald Trump?"))["finish_reason"])
	long := map[string]any{"content": "at length: who?", "request_id": "r"}
	for range 2 {
		require.Equal(t, "length", p.ask(t, "s", long)["finish_reason"])
	}
	var last [2]string
	for last = range p.stream(t.Context(), t, "s", long) {
	}
	require.Contains(t, last[1], `"finish_reason":"length"`)
	turns := p.finalized(t, "s", 2)
	require.Empty(t, turns[0].(map[string]any)["metadata"])
	require.Equal(t, map[string]any{"finish_reason": "length"}, turns[1].(map[string]any)["metadata"])
}

// TestEchoAnswersWithoutAKey holds that dev says that it is no real model.
func TestEchoAnswersWithoutAKey(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "dev", "--data-dir", dataDir(t))
	require.Eventually(t, func() bool { return strings.Contains(p.out.String(), "an echo") }, 30*time.Second, 10*time.Millisecond)
	out := p.must(t, http.StatusOK, http.MethodPost, "/v1/chat", content("hello"))
	require.Equal(t, "echo", out["model"])
	require.Contains(t, out["content"], "no model is configured")
	require.Contains(t, out["content"], "You said: hello")
}

// TestChatWithAnthropic goes through the other vendor's protocol.
func TestChatWithAnthropic(t *testing.T) {
	t.Parallel()
	model := newScripted(t)
	p := start(t, append(model.env(), "TURNLEDGER_MODEL_API=anthropic", "TURNLEDGER_SYSTEM_PROMPT=Be kind."), "serve", "--data-dir", dataDir(t), "--roles", "api,context,recent,chat")
	p.must(t, http.StatusBadGateway, http.MethodPost, "/v1/threads/failing/messages", content("fail please"))
	<-model.Asked
	p.ask(t, "s", content("Who is Donald Trump?"))
	<-model.Asked
	require.Equal(t, "Don Jr., Ivanka, Eric, Tiffany and Barron.", p.ask(t, "s", content("who are his children"))["content"])
	asked := <-model.Asked
	require.Equal(t, "system: Be kind.", asked[0])
	require.Equal(t, []string{"user: Who is Donald Trump?", "assistant: Donald Trump is an American politician.", "user: who are his children"}, asked[1:])
}

// TestAModelMayBeSilentAsLongAsConfigured and no longer; by itself that is 30 s.
func TestAModelMayBeSilentAsLongAsConfigured(t *testing.T) {
	t.Parallel()
	model := newScripted(t)
	model.hold()
	p := start(t, append(model.env(), "TURNLEDGER_MODEL_SILENCE=1s"), "serve", "--data-dir", dataDir(t), "--roles", "api,context,recent,chat")
	began := time.Now()
	p.must(t, http.StatusBadGateway, http.MethodPost, "/v1/threads/s/messages", content("slowly"))
	require.Less(t, time.Since(began), 25*time.Second)
	p.says(t, "fell silent")
}

// TestARefusedMessageLeavesNothing: options of a prompt that can't be are refused before
// the message is recorded, streamed or not.
func TestARefusedMessageLeavesNothing(t *testing.T) {
	t.Parallel()
	p := start(t, newScripted(t).env(), "serve", "--data-dir", dataDir(t), "--roles", "api,context,recent,chat")
	for _, path := range []string{"/messages", "/messages/stream"} {
		for member, value := range map[string]any{"max_messages": 1, "max_tokens": -1, "language": "both", "on_pending": "maybe", "idle_timeout": "soon", "user_id": "..", "bogus": true} {
			refused := p.must(t, http.StatusUnprocessableEntity, http.MethodPost, "/v1/threads/s"+path, map[string]any{"content": "hello", member: value})
			require.Equal(t, "invalid_argument", refused["code"], member)
			require.Equal(t, false, p.must(t, http.StatusOK, http.MethodGet, session("s"), nil)["found"], member)
		}
	}
}
