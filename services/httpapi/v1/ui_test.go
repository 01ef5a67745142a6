package v1_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/servicetest"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/access"
	answering "github.com/turnledger/turnledger/services/answer"
	"github.com/turnledger/turnledger/services/contextbuilder"
	"github.com/turnledger/turnledger/services/httpapi/openai/respond"
	"github.com/turnledger/turnledger/services/items"
	"github.com/turnledger/turnledger/services/model/endpoint"
	chatopenai "github.com/turnledger/turnledger/services/model/openai"
	"github.com/turnledger/turnledger/services/read"
	"github.com/turnledger/turnledger/services/write"

	"context"

	"github.com/google/uuid"
)

// alone is a process that no other answers beside.
type alone struct{}

func (alone) Announce(uuid.UUID, func() answering.Answering) (func(), error) { return func() {}, nil }
func (alone) Present(context.Context, uuid.UUID) (present bool, about answering.Answering, err error) {
	return false, about, nil
}
func (alone) Claimed(context.Context, uuid.UUID) (uint64, error)     { return 0, nil }
func (alone) Claim(context.Context, uuid.UUID, uint64) (bool, error) { return true, nil }

// uiStack is an API whose chats a scripted model answers.
type uiStack struct {
	*stack

	model   *modeltest.Server
	running services.RunningAnswers
}

// echoing answers with how long the prompt was, and its last words.
func echoing(prompt []string) modeltest.Answer {
	_, words, _ := strings.Cut(prompt[len(prompt)-1], ": ")
	return modeltest.Answer{Text: fmt.Sprintf("%d %s", len(prompt), words)}
}

func startUI(t *testing.T, script func([]string) modeltest.Answer, more ...setting) *uiStack {
	t.Helper()
	log := natstest.Log(t, 1)
	behind := servicetest.Start(t, log, servicetest.Config{
		History: write.Config{Rules: rules}, Reader: read.Config{Rules: rules},
	})
	model := modeltest.New(t, script)
	key := []byte("key of the test")
	a := answering.New(answering.Config{
		Ports: services.Ports{
			Turns: behind.History, Messages: behind.History, SessionWrites: behind.History,
			Lookup: behind.Reader, Sessions: behind.Reader,
		},
		States: behind.Reader, Questions: behind.Reader, Contexts: behind.Contexts, Log: log, Presence: alone{},
		Model:  chatopenai.New(endpoint.Config{URL: model.URL + "/v1", Key: "k", Name: "m"}),
		Output: respond.Output, IDs: items.Minter{Key: key}, Count: contextbuilder.Estimate{}.Count,
	})
	issuer := newIssuing(ring{}, "secret").Issuer
	issuer.Maker = func(string) (access.Caller, error) { return access.Caller{Scopes: access.TokenScopes}, nil }
	s := bare(t, append([]setting{func(c *config) {
		c.v1Config = behind.Ports(c.v1Config)
		c.Lookup, c.LinkReader, c.Erasures, c.Messages = behind.Reader, behind.Reader, behind.History, behind.History
		c.Chat, c.Running, c.Responses, c.ItemKey, c.Tokens, c.Auth = a, a, a, string(key), issuer, issuer
	}}, more...)...)
	s.log = log
	return &uiStack{s, model, a}
}

// uiChat is a chat as a client keeps it.
type uiChat struct {
	*uiStack

	id       string
	messages []map[string]any
	n        int
}

func (s *uiStack) chat(id string) *uiChat { return &uiChat{uiStack: s, id: id} }

func said1(id, role, text string) map[string]any {
	return map[string]any{"id": id, "role": role, "parts": []any{map[string]any{"type": "text", "text": text}}}
}

// post sends what the chat's client has, with other members, and keeps the answer as the SDK does.
func (c *uiChat) post(members map[string]any, header ...string) uiAnswer {
	c.t.Helper()
	body := map[string]any{"id": c.id, "messages": c.messages, "trigger": "submit-message"}
	for k, v := range members {
		if body[k] = v; v == nil {
			delete(body, k)
		}
	}
	a := c.do("POST", "/v1/ui/chat", body, header...)
	out := uiAnswer{answer: a}
	if a.status == http.StatusOK {
		out.read(c.t)
		c.messages = append(c.messages, said1(out.id, "assistant", out.text))
	}
	return out
}

// say sends a new message of the user.
func (c *uiChat) say(text string) uiAnswer {
	c.t.Helper()
	c.n++
	c.messages = append(c.messages, said1(fmt.Sprint("m", c.n), "user", text))
	return c.post(nil)
}

// edit puts other words in the place of a message, as sendMessage does with its id.
func (c *uiChat) edit(id, text string) uiAnswer {
	c.t.Helper()
	for n, m := range c.messages {
		if m["id"] == id {
			c.messages = append(c.messages[:n:n], said1(id, "user", text))
			break
		}
	}
	return c.post(map[string]any{"messageId": id})
}

func (c *uiChat) regenerate() uiAnswer {
	c.t.Helper()
	c.messages = c.messages[:len(c.messages)-1]
	return c.post(map[string]any{"trigger": "regenerate-message"})
}

// uiAnswer is an answer as a UI message stream.
type uiAnswer struct {
	answer

	chunks   []map[string]any
	id, text string
}

func (a *uiAnswer) read(t testing.TB) {
	t.Helper()
	require.Equal(t, []string{"text/event-stream", "v1"}, []string{
		a.header.Get("Content-Type"), a.header.Get("X-Vercel-Ai-Ui-Message-Stream")})
	require.True(t, strings.HasSuffix(string(a.raw), "data: [DONE]\n\n"), "%s", a.raw)
	for line := range strings.SplitSeq(string(a.raw), "\n") {
		if data, is := strings.CutPrefix(line, "data: {"); is {
			chunk := object([]byte("{" + data))
			a.chunks = append(a.chunks, chunk)
			if chunk["type"] == "start" {
				a.id = chunk["messageId"].(string)
			}
			if chunk["type"] == "text-delta" {
				a.text += chunk["delta"].(string)
			}
		}
	}
}

func (a uiAnswer) types() (out []string) {
	for _, c := range a.chunks {
		out = append(out, c["type"].(string))
	}
	return out
}

func (a uiAnswer) recorded() string { return a.header.Get("X-Turnledger-Recorded") }

// listed are the messages as the server lists them: ids, roles and texts.
func (c *uiChat) listed() (out []string) {
	c.t.Helper()
	for cursor := ""; ; {
		page := c.ok(http.StatusOK, "GET", "/v1/ui/chat/"+c.id+"/messages?limit=3"+cursor, nil)
		var texts []string
		for _, m := range page["messages"].([]any) {
			m := m.(map[string]any)
			text := m["role"].(string)[:1] + ":" + m["id"].(string) + ":"
			for _, p := range m["parts"].([]any) {
				p := p.(map[string]any)
				require.NotEmpty(c.t, p["type"])
				if p["text"] != nil {
					text += p["text"].(string)
				}
			}
			texts = append(texts, text)
		}
		require.LessOrEqual(c.t, len(texts), 3)
		out = append(texts, out...)
		if page["next_cursor"] == nil {
			return out
		}
		cursor = "&cursor=" + page["next_cursor"].(string)
	}
}

// kept are the messages as the client has them.
func (c *uiChat) kept() (out []string) {
	for _, m := range c.messages {
		text := m["role"].(string)[:1] + ":" + m["id"].(string) + ":"
		for _, p := range m["parts"].([]any) {
			if words, has := p.(map[string]any)["text"].(string); has {
				text += words
			}
		}
		out = append(out, text)
	}
	return out
}

func (c *uiChat) current() string {
	c.t.Helper()
	id, _ := c.ok(http.StatusOK, "GET", "/v1/sessions/"+c.id, nil)["current_branch"].(string)
	return id
}

// turns are the questions of a session, as the native API lists them.
func (s *stack) questions(session string) []string {
	s.t.Helper()
	return column(s.ok(http.StatusOK, "GET", "/v1/sessions/"+session+"/turns?status=all", nil)["turns"],
		"question_neutral")
}

func TestAChatOfUIMessages(t *testing.T) {
	t.Parallel()
	s := startUI(t, echoing)
	c := s.chat("c")
	first := c.say("one")
	require.Equal(t, http.StatusOK, first.status, "%s", first.raw)
	require.Equal(t, "turn", first.recorded())
	require.Equal(t, "1 one", first.text)
	require.Equal(t, []string{"start", "start-step", "text-start", "text-delta", "text-delta", "text-end",
		"finish-step", "finish"}, first.types())
	require.Equal(t, "3 two", c.say("two").text)
	require.Equal(t, c.kept(), c.listed())
	turn := s.ok(http.StatusOK, "GET", "/v1/sessions/c/turns", nil)["turns"].([]any)[0].(map[string]any)
	require.Equal(t, []any{"m1", first.id}, []any{turn["request_id"], turn["turn_id"]}, "its id is its request")

	// The last message alone, and the same again: a retry has the recorded answer, and adds nothing.
	alone := c.post(map[string]any{"messages": nil, "message": said1("m3", "user", "three")})
	require.Equal(t, "5 three", alone.text)
	head := s.head()
	for _, members := range []map[string]any{
		{"messages": nil, "message": said1("m3", "user", "three ")},
		{"messages": append(c.messages[:4:4], said1("m3", "user", "three"))},
	} {
		again := c.post(members)
		require.Equal(t, []string{"again", alone.id, alone.text}, []string{again.recorded(), again.id, again.text})
		require.Equal(t, alone.chunks, again.chunks)
	}
	require.Equal(t, head, s.head())
	require.Empty(t, c.current())
	require.Len(t, c.listed(), 6)
}

func TestWhatIsNoMessageIsRefused(t *testing.T) {
	t.Parallel()
	s := startUI(t, echoing)
	ask := said1("m", "user", "q")
	for name, body := range map[string]any{
		"no id":       map[string]any{"messages": []any{ask}},
		"no messages": map[string]any{"id": "c"},
		"both":        map[string]any{"id": "c", "messages": []any{ask}, "message": ask},
		"says nothing": map[string]any{"id": "c", "messages": []any{
			map[string]any{"id": "m", "role": "user", "parts": []any{}}}},
		"the assistant's":       map[string]any{"id": "c", "messages": []any{ask, said1("a", "assistant", "a")}},
		"a bad id":              map[string]any{"id": "c", "messages": []any{said1(".", "user", "q")}},
		"no tools":              map[string]any{"id": "c", "messages": []any{ask}, "tools": "x"},
		"no tokens":             map[string]any{"id": "c", "messages": []any{ask}, "max_output_tokens": 0},
		"no parts":              map[string]any{"id": "c", "messages": []any{map[string]any{"id": "m", "parts": 1}}},
		"nothing to regenerate": map[string]any{"id": "c", "trigger": "regenerate-message"},
	} {
		a := s.do("POST", "/v1/ui/chat", body)
		require.Equal(t, http.StatusUnprocessableEntity, a.status, "%s: %s", name, a.raw)
		require.Equal(t, "invalid_argument", a.body["code"], name)
	}
	requireProblem(t, s.do("POST", "/v1/ui/chat", "{"), http.StatusBadRequest, "malformed")
	for _, a := range []answer{
		s.do("POST", "/v1/ui/chat", map[string]any{"id": "c", "messages": []any{ask}}, "X-Turnledger-Stream", "yes"),
		s.do("GET", "/v1/ui/chat/c/messages?cursor=x", nil), s.do("GET", "/v1/ui/chat/./messages", nil),
	} {
		require.Equal(t, http.StatusUnprocessableEntity, a.status, "%s", a.raw)
	}
	require.Zero(t, s.head())
}

// An edit is a branch before its turn, which all goes on in; going on under the old id makes no other.
func TestAnEditedMessageForks(t *testing.T) {
	t.Parallel()
	s := startUI(t, echoing)
	for _, edited := range []string{"m1", "m2", "m3"} {
		t.Run(edited, func(t *testing.T) {
			c := s.chat("c" + edited)
			for n := range 3 {
				c.say(fmt.Sprint("q", n))
			}
			old := c.listed()
			a := c.edit(edited, "else")
			require.Equal(t, "fork", a.recorded(), "%s", a.raw)
			branch := a.header.Get("X-Turnledger-Session")
			require.Equal(t, branch, c.current())
			require.NotEqual(t, c.id, branch)
			require.Equal(t, c.kept(), c.listed())
			again := c.post(map[string]any{"messages": c.messages[:len(c.messages)-1]})
			require.Equal(t, []string{"again", a.id}, []string{again.recorded(), again.id})
			c.messages = c.messages[:len(c.messages)-1]
			for n := range 10 {
				a := c.say(fmt.Sprint("more", n))
				require.Equal(t, []string{"turn", branch}, []string{a.recorded(),
					a.header.Get("X-Turnledger-Session")})
			}
			require.Equal(t, c.kept(), c.listed())
			require.Equal(t, branch, c.current())
			require.Equal(t, []string{"q0", "q1", "q2"}, s.questions(c.id), "the old words stand")
			require.Len(t, old, 6)
		})
	}
}

// Each new answer is one branch, with the same question, and the newest stands.
func TestAnAnswerIsRegenerated(t *testing.T) {
	t.Parallel()
	n := 0
	s := startUI(t, func([]string) modeltest.Answer {
		n++
		return modeltest.Answer{Text: fmt.Sprint("answer ", n)}
	})
	c := s.chat("c")
	c.say("one")
	c.say("two")
	branches := map[string]bool{}
	for n := range 3 {
		a := c.regenerate()
		require.Equal(t, "fork", a.recorded(), "%s", a.raw)
		require.Equal(t, fmt.Sprint("answer ", n+3), a.text)
		branches[a.header.Get("X-Turnledger-Session")] = true
		require.Equal(t, c.kept(), c.listed())
		require.Contains(t, c.listed()[2], "u:m2:two")
	}
	require.Len(t, branches, 3)
	require.Equal(t, []string{"one", "two"}, s.questions("c"))
	// By the ids alone, of the answer and of the question.
	for _, id := range []string{c.messages[3]["id"].(string), "m2"} {
		a := c.post(map[string]any{"messages": nil, "trigger": "regenerate-message", "messageId": id},
			"Idempotency-Key", "k"+id)
		require.Equal(t, "fork", a.recorded(), "%s", a.raw)
		again := c.post(map[string]any{"messages": nil, "trigger": "regenerate-message", "messageId": id},
			"Idempotency-Key", "k"+id)
		require.Equal(t, []string{"again", a.id}, []string{again.recorded(), again.id})
		require.Contains(t, c.listed()[2], "u:m2:two")
	}
	c.messages = c.messages[:2]
	require.Equal(t, "fork", c.regenerate().recorded(), "the first one")
	require.Len(t, c.listed(), 2)
}

// However often an answer is made anew, in however many tabs, the branches stay flat, and the newest answer stands.
func TestAnswersAreMadeAnewManyTimes(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	s := startUI(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: fmt.Sprint("answer ", n.Add(1))} })
	c := s.chat("c")
	c.say("one")
	c.say("two")
	old := append([]map[string]any{}, c.messages...)
	for range 40 {
		require.Equal(t, "fork", c.regenerate().recorded())
	}
	require.Equal(t, c.kept(), c.listed())
	for n := range 40 {
		require.Equal(t, "fork", c.edit("m2", fmt.Sprint("two, ", n)).recorded())
	}
	require.Equal(t, c.kept(), c.listed())
	other := s.chat("c") // a tab that saw nothing of it
	other.messages, other.n = old, 10
	require.Equal(t, []string{"turn", "c"}, strings.Fields(func() string {
		a := other.say("three")
		return a.recorded() + " " + a.header.Get("X-Turnledger-Session")
	}()))
	require.Equal(t, other.kept(), c.listed())
	other.messages = other.messages[:4]
	anew := other.regenerate()
	require.Equal(t, "fork", anew.recorded(), "%s", anew.raw)
	require.Equal(t, fmt.Sprint("answer ", n.Load()), anew.text, "it is a new one")
	require.Equal(t, other.kept(), c.listed())
}

// The same message at once, as of a client that lost its connection, is one turn and one answer.
func TestTheSameMessageAtOnceIsOneTurn(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	s := startUI(t, func([]string) modeltest.Answer {
		asked.Add(1)
		return modeltest.Answer{Text: "one two", Every: 20 * time.Millisecond}
	})
	s.chat("c").say("zero")
	for _, edit := range []string{"m1", "m2"} {
		before := asked.Load()
		answers := make(chan answer, 8)
		for range cap(answers) {
			go func() {
				a, _ := s.try("POST", "/v1/ui/chat", map[string]any{"id": "c", "message": said1(edit, "user", "new")})
				answers <- a
			}()
		}
		ids := map[string]bool{}
		for range cap(answers) {
			a := uiAnswer{answer: <-answers}
			a.read(t)
			require.Equal(t, "one two", a.text)
			ids[a.id] = true
		}
		require.Len(t, ids, 1)
		require.Equal(t, before+1, asked.Load(), edit)
	}
}

// What stands before the new message is the log's to say.
func TestAClientsHistoryIsNotBelieved(t *testing.T) {
	t.Parallel()
	s := startUI(t, echoing)
	for name, sent := range map[string]func(m []map[string]any) []map[string]any{
		"an answer with other words": func(m []map[string]any) []map[string]any {
			return []map[string]any{m[0], said1("x", "assistant", "lies"), m[2], m[3]}
		},
		"its front is gone": func(m []map[string]any) []map[string]any { return m[2:] },
		"an answer is left out": func(m []map[string]any) []map[string]any {
			return []map[string]any{m[0], m[2], m[3]}
		},
		"a question with other words": func(m []map[string]any) []map[string]any {
			return []map[string]any{m[0], m[1], said1("m2", "user", "lies"), m[3]}
		},
		"nothing": func([]map[string]any) []map[string]any { return nil },
		"its ids are those of the client": func(m []map[string]any) []map[string]any {
			return []map[string]any{said1("x", "user", "one"), said1("y", "assistant", "1 one"), m[2], m[3]}
		},
		"without the data of the application": func(m []map[string]any) []map[string]any {
			return append(m, map[string]any{"id": "s", "role": "system", "parts": []any{
				map[string]any{"type": "data-x", "data": 1}}})
		},
	} {
		c := s.chat("c-" + strings.ReplaceAll(name, " ", "-"))
		c.say("one")
		c.say("two")
		c.messages = append(sent(c.messages), said1("m3", "user", "next"))
		a := c.post(nil)
		require.Equal(t, []string{"turn", c.id}, []string{a.recorded(), a.header.Get("X-Turnledger-Session")}, name)
		require.Equal(t, "5 next", a.text, name)
		require.NotContains(t, strings.Join(c.listed(), "\n"), "lies")
		require.Len(t, c.listed(), 6)
		require.Empty(t, c.current())
	}
}

// A client that was left behind goes on where it was; its branch is then the current one.
func TestAChatInTwoTabs(t *testing.T) {
	t.Parallel()
	s := startUI(t, echoing)
	c, other := s.chat("c"), s.chat("c")
	c.say("one")
	other.messages, other.n = append([]map[string]any{}, c.messages...), 10
	c.say("two")
	a := other.say("three")
	require.Equal(t, []string{"fork", "3 three"}, []string{a.recorded(), a.text})
	require.Equal(t, other.kept(), c.listed())
	b := c.say("four") // the first tab again
	require.Equal(t, []string{"turn", "c"}, []string{b.recorded(), b.header.Get("X-Turnledger-Session")})
	require.Equal(t, c.kept(), c.listed())
	require.Empty(t, c.current())
	require.Equal(t, "turn", other.say("five").recorded())
	require.Equal(t, other.kept(), c.listed())
}

// A redacted turn never comes back, whatever a client brings.
func TestARedactedTurnStaysOutOfAChat(t *testing.T) {
	t.Parallel()
	s := startUI(t, echoing)
	c := s.chat("c")
	first := c.say("secret")
	c.say("two")
	s.ok(http.StatusOK, "POST", "/v1/sessions/c/turns/"+first.id+"/redact", map[string]any{})
	a := c.say("three")
	require.Equal(t, []string{"turn", "3 three"}, []string{a.recorded(), a.text}, "%s", a.raw)
	require.Equal(t, c.kept()[2:], c.listed())
	for _, words := range []string{"secret", "else"} {
		again := c.post(map[string]any{"messages": []any{said1("m1", "user", words)}})
		requireProblem(t, again.answer, http.StatusConflict, "turn_redacted")
	}
	regenerated := c.post(map[string]any{"messages": nil, "trigger": "regenerate-message", "messageId": first.id})
	requireProblem(t, regenerated.answer, http.StatusConflict, "turn_redacted")
	edited := c.edit("m2", "other")
	require.Equal(t, []string{"fork", "1 other"}, []string{edited.recorded(), edited.text}, "%s", edited.raw)
	require.NotContains(t, strings.Join(c.listed(), "\n"), "secret")
}

// A corrected turn is what it was corrected to, for a client that has the old words, too.
func TestACorrectedTurnStandsInAChat(t *testing.T) {
	t.Parallel()
	s := startUI(t, echoing)
	c := s.chat("c")
	first := c.say("wrong")
	s.ok(http.StatusOK, "POST", "/v1/sessions/c/turns/"+first.id+"/correct", map[string]any{"request_id": "fix",
		"question_neutral": "right", "answer_neutral": "yes"})
	a := c.say("two")
	require.Equal(t, []string{"turn", "c"}, []string{a.recorded(), a.header.Get("X-Turnledger-Session")}, "%s", a.raw)
	require.Len(t, c.listed(), 4)
	require.NotContains(t, strings.Join(c.listed(), "\n"), "wrong")
}

// A caller who hangs up ends nothing: who comes back watches the answer from its beginning, or finds it.
func TestAnAnswerGoesOnWithoutItsCaller(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	s := startUI(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "one two three", Hold: held} })
	ctx, leave := context.WithCancel(t.Context())
	body := `{"id":"c","messages":[{"id":"m1","role":"user","parts":[{"type":"text","text":"q"}]}]}`
	r, err := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/ui/chat", strings.NewReader(body))
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	seen := readUntil(t, resp.Body, "text-delta\"}\n\n")
	leave()
	_ = resp.Body.Close()
	c := s.chat("c")
	require.Equal(t, []string{"u:m1:q"}, c.listed(), "the answer has no parts yet")
	resumed := make(chan answer, 2)
	for range 2 {
		go func() {
			a, _ := s.try("GET", "/v1/ui/chat/c/stream", nil)
			resumed <- a
		}()
	}
	located := s.do("GET", "/v1/ui/chat/c/stream", nil, "X-Turnledger-Stream", "durable")
	require.Equal(t, http.StatusOK, located.status)
	at := located.header.Get("Location")
	part := s.do("GET", at, nil)
	require.Equal(t, []string{"true", ""}, []string{part.header.Get("Stream-Up-To-Date"),
		part.header.Get("Stream-Closed")}, "%s", part.raw)
	live := make(chan answer, 1)
	go func() {
		a, _ := s.try("GET", at+"&live=sse&offset="+part.header.Get("Stream-Next-Offset"), nil)
		live <- a
	}()
	close(held)
	for range 2 {
		a := uiAnswer{answer: <-resumed}
		a.read(t)
		require.True(t, strings.HasPrefix(string(a.raw), seen), "%s", a.raw)
		require.Equal(t, "one two three", a.text)
		require.Equal(t, "finish", a.types()[len(a.chunks)-1])
	}
	whole := messagesOf(t, s.do("GET", at, nil).raw)
	rest := (<-live).raw
	require.Contains(t, string(rest), `"streamClosed":true`)
	var late []map[string]any
	for line := range strings.SplitSeq(string(rest), "\n") {
		if data, is := strings.CutPrefix(line, "data: ["); is {
			late = append(late, messagesOf(t, []byte("["+data))...)
		}
	}
	require.Equal(t, whole, append(messagesOf(t, part.raw), late...), "numbers hold")
	require.Equal(t, http.StatusNoContent, s.do("GET", "/v1/ui/chat/c/stream", nil).status)
	require.Equal(t, http.StatusNoContent, s.do("GET", "/v1/ui/chat/nobody/stream", nil).status)
	require.Len(t, c.listed(), 2)
}

// readUntil reads until a text has come.
func readUntil(t testing.TB, r io.Reader, text string) (read string) {
	t.Helper()
	for b := make([]byte, 1); !strings.HasSuffix(read, text); read += string(b) {
		_, err := io.ReadFull(r, b)
		require.NoError(t, err, read)
	}
	return read
}

// An answer that is stopped keeps what was said, and ends as an abort for all.
func TestAnAnswerIsStopped(t *testing.T) {
	t.Parallel()
	s := startUI(t, func([]string) modeltest.Answer { return modeltest.Answer{Text: "one two", Stall: true} })
	c := s.chat("c")
	require.Equal(t, http.StatusOK, s.do("POST", "/v1/ui/chat/c/stop", nil).status)
	located := c.post(map[string]any{"messages": []any{said1("m1", "user", "q")}}, "X-Turnledger-Stream", "durable")
	require.Equal(t, http.StatusCreated, located.status, "%s", located.raw)
	resumed := make(chan answer, 1)
	begun := make(chan struct{})
	go func() {
		close(begun)
		a, _ := s.try("GET", "/v1/ui/chat/c/stream", nil)
		resumed <- a
	}()
	<-begun
	at := located.header.Get("Location")
	hang.Until(t, func() bool { return strings.Contains(string(s.do("GET", at, nil).raw), "one ") }, "the first word")
	stopped := s.do("POST", "/v1/ui/chat/c/stop", `{}`)
	require.Equal(t, http.StatusAccepted, stopped.status, "%s", stopped.raw)
	a := uiAnswer{answer: <-resumed}
	if a.status == http.StatusOK {
		a.read(t)
		require.Equal(t, "abort", a.types()[len(a.chunks)-1])
	}
	hang.Until(t, func() bool { return s.do("GET", at, nil).header.Get("Stream-Closed") == "true" }, "the end")
	whole := messagesOf(t, s.do("GET", at, nil).raw)
	require.Equal(t, "abort", whole[len(whole)-1]["type"])
	require.Equal(t, []string{"u:m1:q", "a:" + located.header.Get("X-Turnledger-Turn") + ":one "}, c.listed())
}

// A tool that the client runs: its output goes on with the turn, once.
func TestAToolOfTheClient(t *testing.T) {
	t.Parallel()
	var calls []modeltest.Call
	s := startUI(t, func(prompt []string) modeltest.Answer {
		if strings.HasPrefix(prompt[len(prompt)-1], "tool: ") {
			return modeltest.Answer{Text: "It is " + prompt[len(prompt)-1]}
		}
		return modeltest.Answer{Text: "Let me see.", Calls: calls}
	})
	tools := map[string]any{"weather": map[string]any{"description": "d", "needsApproval": true,
		"inputSchema": map[string]any{"type": "object"}}}
	for name, done := range map[string]struct {
		part  map[string]any
		says  string
		state string
	}{
		"output": {map[string]any{"state": "output-available", "output": map[string]any{"warm": true}}, `{"warm":true}`,
			"output-available"},
		"a text":   {map[string]any{"state": "output-available", "output": "sunny"}, "sunny", "output-available"},
		"error":    {map[string]any{"state": "output-error", "errorText": "no network"}, "no network", "output-error"},
		"approval": {map[string]any{"state": "approval-responded", "approval": map[string]any{"id": "call_1", "approved": true}}, `{"approved":true}`, "output-available"},
		"denial": {map[string]any{"state": "output-denied", "approval": map[string]any{"id": "call_1", "approved": false, "reason": "no"}},
			`{"approved":false,"reason":"no"}`, "output-denied"},
	} {
		calls = []modeltest.Call{{ID: "call_1", Name: "weather", Arguments: `{"city":"Bonn"}`}}
		c := s.chat("c-" + strings.ReplaceAll(name, " ", "-"))
		c.messages = []map[string]any{said1("m1", "user", "weather?")}
		a := c.post(map[string]any{"tools": tools})
		require.Equal(t, []string{"start", "start-step", "text-start", "text-delta", "text-delta", "text-delta",
			"text-end", "tool-input-start", "tool-input-delta", "tool-input-delta", "tool-input-available", "tool-approval-request",
			"finish-step", "finish"}, a.types(), "%s", a.raw)
		require.Equal(t, "tool-calls", a.chunks[13]["finishReason"])
		require.Equal(t, map[string]any{"city": "Bonn"}, a.chunks[10]["input"])
		part := map[string]any{"type": "tool-weather", "toolCallId": "call_1", "input": map[string]any{"city": "Bonn"}}
		reloaded := s.ok(http.StatusOK, "GET", "/v1/ui/chat/"+c.id+"/messages", nil)["messages"].([]any)[1]
		require.Equal(t, map[string]any{"type": "tool-weather", "toolCallId": "call_1", "state": "approval-requested",
			"input": map[string]any{"city": "Bonn"}, "approval": map[string]any{"id": "call_1"}},
			reloaded.(map[string]any)["parts"].([]any)[2], "who reloads may still approve")
		for k, v := range done.part {
			part[k] = v
		}
		message := c.messages[1]
		message["parts"] = append(message["parts"].([]any), part)
		second := c.post(map[string]any{"tools": tools, "messageId": a.id})
		require.Equal(t, []string{"extension", a.id}, []string{second.recorded(), second.id}, "%s", second.raw)
		require.Equal(t, "It is tool: "+done.says, second.text, name)
		c.messages = c.messages[:2]
		again := c.post(map[string]any{"tools": tools, "messageId": a.id})
		require.Equal(t, []string{"again", second.text}, []string{again.recorded(), again.text}, name)
		require.Equal(t, second.chunks, again.chunks)
		require.Equal(t, []string{"u:m1:weather?", "a:" + a.id + ":Let me see.It is tool: " + done.says}, c.listed())
		listed := s.ok(http.StatusOK, "GET", "/v1/ui/chat/"+c.id+"/messages", nil)["messages"].([]any)
		parts := listed[1].(map[string]any)["parts"].([]any)
		require.Equal(t, []string{"step-start", "text", "tool-weather", "step-start", "text"}, column(parts, "type"))
		require.Equal(t, done.state, parts[2].(map[string]any)["state"])
		c.n, c.messages[1] = 1, said1(a.id, "assistant", "Let me see.") // a client that drops calls and outputs
		require.Equal(t, "turn", c.say("thanks").recorded(), name)
		require.Empty(t, c.current())
	}
}

// An output of a call that the chat has not made is no output.
func TestOutputsOfNoCallAreRefused(t *testing.T) {
	t.Parallel()
	s := startUI(t, echoing)
	c := s.chat("c")
	a := c.say("one")
	head := s.head()
	c.messages[1]["parts"] = append(c.messages[1]["parts"].([]any), map[string]any{"type": "tool-weather",
		"toolCallId": "call_9", "state": "output-available", "input": map[string]any{}, "output": "lies"})
	refused := c.post(map[string]any{"messageId": a.id})
	require.Equal(t, http.StatusUnprocessableEntity, refused.status, "%s", refused.raw)
	require.Equal(t, head, s.head())
}

// Whoever comes back while a model answers to a tool's output is sent the whole message, and once it is recorded none.
func TestWhoComesBackInTheSecondStepGetsBoth(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	s := startUI(t, func(prompt []string) modeltest.Answer {
		if strings.HasPrefix(prompt[len(prompt)-1], "tool: ") {
			return modeltest.Answer{Text: "It is warm.", Hold: held}
		}
		return modeltest.Answer{Text: "Let me see.", Calls: []modeltest.Call{
			{ID: "call_1", Name: "weather", Arguments: `{"city":"Bonn"}`}, {ID: "call_2", Name: "weather", Arguments: `{}`}}}
	})
	c := s.chat("c")
	c.messages = []map[string]any{said1("m1", "user", "weather?")}
	a := c.post(nil)
	for n, part := range []map[string]any{
		{"state": "output-available", "output": map[string]any{"warm": true}},
		{"state": "output-error", "errorText": "no city"},
	} {
		part["type"], part["toolCallId"] = "tool-weather", fmt.Sprint("call_", n+1)
		c.messages[1]["parts"] = append(c.messages[1]["parts"].([]any), part)
	}
	second := c.post(map[string]any{"messageId": a.id}, "X-Turnledger-Stream", "durable")
	require.Equal(t, http.StatusCreated, second.status, "%s", second.raw)
	at := second.header.Get("Location")
	hang.Until(t, func() bool { return strings.Contains(string(s.do("GET", at, nil).raw), "It ") }, "the first word")
	resp, err := http.Get(s.url + "/v1/ui/chat/c/stream")
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	seen := readUntil(t, resp.Body, `"It "`)
	located := s.do("GET", "/v1/ui/chat/c/stream", nil, "X-Turnledger-Stream", "durable")
	require.Equal(t, http.StatusOK, located.status)
	require.Contains(t, located.header.Get("Location"), url.PathEscape(a.id)+"@", "its own chunks alone")
	close(held)
	rest, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	whole := uiAnswer{answer: answer{header: resp.Header, raw: append([]byte(seen), rest...)}}
	whole.read(t)
	require.Equal(t, "Let me see.It is warm.", whole.text)
	require.Equal(t, a.id, whole.id)
	types := whole.types()
	require.Equal(t, []string{"start", "start-step", "text-start", "text-delta", "text-end", "tool-input-available",
		"tool-output-available", "tool-input-available", "tool-output-error", "finish-step", "start-step", "text-start"},
		types[:12])
	require.Equal(t, []string{"text-end", "finish-step", "finish"}, types[len(types)-3:])
	require.Equal(t, map[string]any{"warm": true}, whole.chunks[6]["output"])
	require.Equal(t, http.StatusNoContent, s.do("GET", "/v1/ui/chat/c/stream", nil).status)
}

// A current branch that was erased is none any more.
func TestAnErasedBranchIsNotCurrent(t *testing.T) {
	t.Parallel()
	s := startUI(t, echoing)
	c := s.chat("c")
	c.say("one")
	old := c.listed()
	branch := c.edit("m1", "else").header.Get("X-Turnledger-Session")
	require.Equal(t, branch, c.current())
	require.Equal(t, http.StatusAccepted, s.do("DELETE", "/v1/sessions/"+branch, nil).status)
	require.Equal(t, old, c.listed())
	c.messages = nil
	a := c.post(map[string]any{"message": said1("m2", "user", "on"), "messages": nil})
	require.Equal(t, []string{"turn", "c"}, []string{a.recorded(), a.header.Get("X-Turnledger-Session")})
}

// A ticket opens the stream of its answer, for ten minutes, and nothing else; it is in no line of the log.
func TestATicketIsForOneAnswer(t *testing.T) {
	t.Parallel()
	var issuer *issuing
	s := startUI(t, echoing, func(c *config) {
		issuer = newIssuing(ring{
			"all": {Name: "all", Scopes: scopes}, "ada": {Name: "ada", Scopes: scopes, IdentityID: "ada"},
			"bob": {Name: "bob", Scopes: scopes, IdentityID: "bob"}, "writer": {Name: "writer", Scopes: writes},
		}, "secret")
		c.Open, c.Auth, c.Tokens = false, issuer, issuer.Issuer
	})
	ask := func(key, chat, id string) answer {
		return s.do("POST", "/v1/ui/chat", map[string]any{"id": chat, "message": said1(id, "user", "q")},
			"Authorization", "Bearer "+key, "X-Turnledger-Stream", "durable")
	}
	token := s.as("ada", "POST", "/v1/tokens", map[string]any{"identity_id": "ada", "expires_in": 60,
		"scopes": []string{"turns:write", "context:read"}}).body["token"].(string)
	for _, key := range []string{"all", "ada", token} {
		chat := "chat-of-" + key[:3]
		first, second := ask(key, chat, "m1"), ask(key, chat, "m2")
		require.Equal(t, http.StatusCreated, first.status, "%s", first.raw)
		at := first.header.Get("Location")
		path, query, _ := strings.Cut(at, "?")
		read := s.do("GET", at, nil)
		require.Equal(t, http.StatusOK, read.status, "%s", read.raw)
		hang.Until(t, func() bool { return s.do("GET", at, nil).header.Get("Stream-Closed") == "true" }, "closed")
		require.Equal(t, http.StatusOK, s.do("GET", path, nil, "Authorization", "Bearer "+key).status)
		for what, a := range map[string]answer{
			"without any":        s.do("GET", path, nil),
			"another's ticket":   s.do("GET", path+"?"+strings.SplitN(second.header.Get("Location"), "?", 2)[1], nil),
			"another session":    s.do("GET", strings.Replace(at, chat, "other", 1), nil),
			"a changed one":      s.do("GET", at+"x", nil),
			"as a key":           s.do("GET", "/v1/ui/chat/"+chat+"/messages", nil, "Authorization", "Bearer tlt1_"+query[7:]),
			"in another address": s.do("GET", "/v1/sessions/"+chat+"?"+query, nil),
			"a key as ticket":    s.do("GET", path+"?ticket=all", nil),
		} {
			require.Equal(t, http.StatusUnauthorized, a.status, "%s: %s", what, a.raw)
		}
		require.NotContains(t, s.logs.String(), query[7:40])
		issuer.late.Store(int64(11 * 60e9))
		require.Equal(t, http.StatusUnauthorized, s.do("GET", at, nil).status, "ten minutes later")
		issuer.late.Store(0)
	}
	theirs := ask("ada", "chat-of-ada", "m3").header.Get("Location")
	path, _, _ := strings.Cut(theirs, "?")
	requireProblem(t, s.as("bob", "GET", path, nil), http.StatusNotFound, "session_not_found")
	requireProblem(t, s.as("writer", "GET", path, nil), http.StatusForbidden, "forbidden")
	requireProblem(t, ask("bob", "chat-of-ada", "m9"), http.StatusNotFound, "session_not_found")
	requireProblem(t, s.as("all", "GET", strings.Replace(path, "chat-of-ada", "chat-of-all", 1), nil),
		http.StatusNotFound, "turn_not_found")
	// A bound caller begins its chat, linked.
	require.Equal(t, http.StatusCreated, ask("bob", "bobs", "m1").status)
	require.Equal(t, "bob", s.as("all", "GET", "/v1/sessions/bobs", nil).body["identity_id"])
	// A system prompt of a token is not taken; that of a key is.
	for key, taken := range map[string]bool{"ada": true, token: false} {
		a := s.do("POST", "/v1/ui/chat", map[string]any{"id": "system" + key[:3], "system": "obey",
			"message": said1("m1", "user", "why "+key[:3])}, "Authorization", "Bearer "+key)
		require.Equal(t, http.StatusOK, a.status)
		prompt := ""
		for !strings.Contains(prompt, "why "+key[:3]) { // answers in the background are asked for, too
			prompt = strings.Join(<-s.model.Asked, "\n")
		}
		require.Equal(t, taken, strings.Contains(prompt, "obey"))
	}
}

// Images and files go to the model; the chat has the texts that stand for them.
func TestAttachmentsOfAChat(t *testing.T) {
	t.Parallel()
	s := startUI(t, echoing)
	c := s.chat("c")
	const pixel = "data:image/png;base64,iVBORw0KGgo="
	c.messages = []map[string]any{{"id": "m1", "role": "user", "parts": []any{
		map[string]any{"type": "text", "text": "what is it?"},
		map[string]any{"type": "file", "mediaType": "image/png", "url": pixel},
		map[string]any{"type": "file", "mediaType": "application/pdf", "filename": "a.pdf",
			"url": "data:application/pdf;base64,JVBERg=="},
	}}}
	a := c.post(nil)
	require.Equal(t, http.StatusOK, a.status, "%s", a.raw)
	sent := <-s.model.Bodies
	require.Contains(t, string(sent), pixel)
	again := c.post(map[string]any{"messages": c.messages[:1]})
	require.Equal(t, "again", again.recorded(), "%s", again.raw)
	raw, _ := json.Marshal(s.ok(http.StatusOK, "GET", "/v1/ui/chat/c/messages", nil))
	require.NotContains(t, string(raw), "iVBOR")
	parts := s.ok(http.StatusOK, "GET", "/v1/ui/chat/c/messages", nil)["messages"].([]any)[0].(map[string]any)["parts"]
	require.Equal(t, []string{"text", "text", "text"}, column(parts, "type"), "%s", raw)
	require.Contains(t, fmt.Sprint(parts), "a.pdf")
	c.messages, c.n = c.messages[:2], 1
	require.Equal(t, "turn", c.say("and now?").recorded())
	require.Empty(t, c.current())
}
