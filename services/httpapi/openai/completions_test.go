package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	testdata "github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events/decide"
	"github.com/turnledger/turnledger/events/message"
	"github.com/turnledger/turnledger/events/session"
	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/answer"
	"github.com/turnledger/turnledger/services/model/endpoint"
	chatopenai "github.com/turnledger/turnledger/services/model/openai"
)

const completions = "/v1/chat/completions"

// upstream is a model's endpoint that keeps what it is sent.
type upstream struct {
	mu     sync.Mutex
	bodies []map[string]any
	status int
	answer string
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	u.bodies = append(u.bodies, body)
	w.Header().Set("Content-Type", "application/json")
	if u.status != 0 {
		w.WriteHeader(u.status)
	}
	_, _ = w.Write([]byte(u.answer))
}

func (u *upstream) last() map[string]any {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.bodies[len(u.bodies)-1]
}

const hello = `{"model":"m-1","choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},
	"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}`

func atUpstream(t *testing.T) (*upstream, *stack) {
	t.Helper()
	u := &upstream{answer: hello}
	server := httptest.NewServer(u)
	t.Cleanup(server.Close)
	return u, start(t, answeredBy(chatopenai.New(endpoint.Config{URL: server.URL + "/v1", Name: "m"})))
}

// Without a session a request passes through: unknown members go on, those of ours do not, and nothing is recorded.
func TestACompletionWithoutASessionPassesThrough(t *testing.T) {
	t.Parallel()
	u, s := atUpstream(t)
	head := s.head()
	body := `{"model":"any","messages":[{"role":"system","content":"S"},{"role":"user","content":"q","name":"Ann"}],
		"top_k":4,"metadata":{"a":"b"},"store":true,"max_tokens":7%s}`
	a := s.do("POST", completions, fmt.Sprintf(body, ""))
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.Equal(t, "none", a.header.Get("X-Turnledger-Recorded"))
	require.Empty(t, a.header.Get("X-Turnledger-Session"))
	choice := a.body["choices"].([]any)[0].(map[string]any)
	require.Equal(t, "Hello", choice["message"].(map[string]any)["content"])
	require.Equal(t, "stop", choice["finish_reason"])
	require.EqualValues(t, 4, a.body["usage"].(map[string]any)["total_tokens"])
	sent := u.last()
	require.EqualValues(t, 4, sent["top_k"])
	require.EqualValues(t, 7, sent["max_tokens"])
	require.Equal(t, "m", sent["model"])
	require.NotContains(t, sent, "metadata")
	require.NotContains(t, sent, "store")
	require.NotContains(t, sent, "max_completion_tokens")
	require.Equal(t, "Ann", sent["messages"].([]any)[1].(map[string]any)["name"])
	for _, wanted := range []bool{false, true} {
		chunks, text := s.chunks(fmt.Sprintf(body, fmt.Sprintf(`,"stream":true,"stream_options":{"include_usage":%t}`, wanted)))
		require.Equal(t, "Hello", text)
		require.Equal(t, map[string]any{"include_usage": true}, u.last()["stream_options"])
		last := chunks[len(chunks)-1]
		require.Equal(t, wanted, last["usage"] != nil)
	}
	require.Equal(t, head, s.head())
}

// chunks posts a request for a stream, and returns its chunks and their text; it ends with [DONE].
func (s *stack) chunks(body string, headers ...string) (out []map[string]any, text string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+completions, strings.NewReader(body))
	require.NoError(s.t, err)
	for n := 0; n+1 < len(headers); n += 2 {
		r.Header.Set(headers[n], headers[n+1])
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(s.t, err)
	defer func() { _ = resp.Body.Close() }()
	all, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	raw := string(all)
	require.True(s.t, strings.HasSuffix(raw, "data: [DONE]\n\n"), raw)
	for line := range strings.SplitSeq(raw, "\n") {
		data, is := strings.CutPrefix(line, "data: {")
		if !is {
			continue
		}
		var c map[string]any
		require.NoError(s.t, json.Unmarshal([]byte("{"+data), &c))
		out = append(out, c)
		for _, choice := range c["choices"].([]any) {
			said, _ := choice.(map[string]any)["delta"].(map[string]any)["content"].(string)
			text += said
		}
	}
	return out, text
}

// What a model's endpoint refuses for the caller's sake keeps its status and its names, but no words; the turn stays.
func TestAModelsRefusalOfACompletion(t *testing.T) {
	t.Parallel()
	u, s := atUpstream(t)
	for status, want := range map[int]int{400: 400, 413: 413, 422: 422, 401: 502, 403: 502, 404: 502} {
		for _, stream := range []bool{false, true} {
			u.status = status
			u.answer = `{"error":{"message":"secret words","type":"a_type","param":"messages[0]","code":"a_code"}}`
			id := fmt.Sprintf("refused-%d-%t", status, stream)
			body := fmt.Sprintf(`{"messages":[{"role":"user","content":"q"}],"stream":%t}`, stream)
			a := s.do("POST", completions, body, "X-Turnledger-Session", id)
			require.Equal(t, want, a.status, a.body)
			e := a.body["error"].(map[string]any)
			require.NotContains(t, e["message"], "secret")
			if want == status {
				require.Equal(t, "a_type", e["type"])
				require.Equal(t, "a_code", e["code"])
				require.Equal(t, "messages[0]", e["param"])
			} else {
				require.Equal(t, "model_failed", e["code"])
			}
			require.Len(t, s.turnsOf(id), 1)
			require.Equal(t, session.Pending, s.turnsOf(id)[0].Status)
			// The same again is the same turn.
			u.status, u.answer = 0, hello
			a = s.do("POST", completions, body, "X-Turnledger-Session", id)
			require.Equal(t, http.StatusOK, a.status, a.body)
			require.Len(t, s.turnsOf(id), 1)
			require.Equal(t, session.Finalized, s.turnsOf(id)[0].Status)
		}
	}
}

// What can't be done is refused before the model is asked; only what was recorded is said to be kept.
func TestRefusalsOfACompletion(t *testing.T) {
	t.Parallel()
	u, s := atUpstream(t)
	const body = `{"messages":[{"role":"user","content":"q"}],%s}`
	for more, param := range map[string]string{
		`"metadata":{"session_id":5}`: "metadata.session_id", `"metadata":{"session_id":["x"]}`: "metadata.session_id",
		`"metadata":{"session_id":""}`: "metadata.session_id", `"n":2`: "n",
	} {
		a := s.do("POST", completions, fmt.Sprintf(body, more))
		require.Equal(t, http.StatusBadRequest, a.status, more)
		require.Equal(t, param, a.body["error"].(map[string]any)["param"])
	}
	for _, id := range []string{"", ".", "a%0Ab", "%ZZ"} {
		a := s.do("POST", completions, fmt.Sprintf(body, `"n":1`), "X-Turnledger-Session", id)
		require.Equal(t, http.StatusBadRequest, a.status, "an id %q would record nothing, or elsewhere", id)
	}
	require.Empty(t, u.bodies)
	a := s.do("POST", completions, fmt.Sprintf(body, `"metadata":{"session_id":5}`), "X-Turnledger-Session", "named")
	require.Equal(t, http.StatusOK, a.status, "the header names it")
	u.status, u.answer = http.StatusBadRequest, `{}`
	for _, kept := range []bool{false, true} {
		var headers []string
		if kept {
			headers = []string{"X-Turnledger-Session", "kept"}
		}
		a = s.do("POST", completions, fmt.Sprintf(body, `"n":1`), headers...)
		require.Equal(t, kept, strings.Contains(a.body["error"].(map[string]any)["message"].(string), "It is kept."))
	}
}

// A call that comes again asks the model with what the first did, also where the history's keeper is found out.
func TestARetryOfACompletionSendsTheSamePrompt(t *testing.T) {
	t.Parallel()
	u, s := atUpstream(t)
	body := `{"messages":[{"role":"user","content":"q1"},{"role":"assistant","content":"a1"},
		{"role":"system","content":"late"},{"role":"user","content":"q2"}]}`
	for header, value := range map[string]string{"X-Stainless-Retry-Count": "1", "Idempotency-Key": "k"} {
		u.status, u.answer = http.StatusBadRequest, `{}`
		headers := []string{"X-Turnledger-Session", "again-" + header, header, value}
		a := s.do("POST", completions, body, headers...)
		require.Equal(t, http.StatusBadRequest, a.status, a.body)
		sent := u.last()["messages"]
		u.status, u.answer = 0, hello
		a = s.do("POST", completions, body, headers...)
		require.Equal(t, http.StatusOK, a.status, a.body)
		require.Equal(t, sent, u.last()["messages"])
		require.Equal(t, "again", became(a))
	}
}

// turnsOf returns the turns of a session.
func (s *stack) turnsOf(id string) []*session.Turn {
	s.t.Helper()
	r, err := s.services.Reader.Read(s.t.Context(), services.Ask{SessionID: id, AllTurns: true, Pending: true})
	require.NoError(s.t, err)
	return r.State.Turns
}

// saying is a model that says what a test wants next, and keeps its prompts.
type saying struct {
	mu      sync.Mutex
	next    []services.AnswerPart
	prompts []services.Prompt
}

func (*saying) Name() string            { return "m" }
func (*saying) Format() services.Format { return services.OpenAI }

func (m *saying) Answer(
	_ context.Context, p services.Prompt, emit func(services.AnswerPiece),
) (services.ModelAnswer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.prompts = append(m.prompts, p)
	for n, part := range m.next {
		emit(services.AnswerPiece{Part: n, AnswerPart: part})
	}
	return services.ModelAnswer{Parts: m.next, Finish: services.FinishStop}, nil
}

func (m *saying) says(text string) {
	m.next = []services.AnswerPart{{Kind: services.PartText, Text: text}}
}

// chat sends messages, "u text" and "a text", to a session.
func (s *stack) chat(id, list string, headers ...string) reply {
	s.t.Helper()
	var messages []any
	for line := range strings.SplitSeq(list, ",") {
		kind, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		role := map[string]string{"u": "user", "a": "assistant", "s": "system"}[kind]
		messages = append(messages, map[string]any{"role": role, "content": text})
	}
	return s.chatWith(id, messages, headers...)
}

func (s *stack) chatWith(id string, messages any, headers ...string) reply {
	s.t.Helper()
	raw, err := json.Marshal(map[string]any{"model": "m", "messages": messages})
	require.NoError(s.t, err)
	a := s.do("POST", completions, string(raw), append([]string{"X-Turnledger-Session", id}, headers...)...)
	require.Equal(s.t, http.StatusOK, a.status, a.body)
	return a
}

func (s *stack) said(id string) (out []string) {
	s.t.Helper()
	for _, t := range s.turnsOf(id) {
		if t.Status == session.Finalized {
			out = append(out, t.Question.QuestionNeutral+"|"+t.Answer.AnswerNeutral)
		}
	}
	return out
}

func became(a reply) string { return a.header.Get("X-Turnledger-Recorded") }

// With its last message alone a client is shown what was recorded, behind its own system messages.
func TestACompletionOfTheLastMessageAlone(t *testing.T) {
	t.Parallel()
	m := &saying{}
	s := start(t, answeredBy(m))
	id := "a session/with ż"
	for n := range 3 {
		m.says(fmt.Sprint("a", n))
		a := s.chat("a%20session%2Fwith%20%C5%BC", fmt.Sprintf("s now it is %d, u q%d", n, n))
		require.Equal(t, "turn", became(a))
		require.Equal(t, "a%20session%2Fwith%20%C5%BC", a.header.Get("X-Turnledger-Session"))
		require.Regexp(t, `^0:\d+$`, a.header.Get("X-Turnledger-Position"))
		require.Equal(t, s.turnsOf(id)[n].ID.String(), a.header.Get("X-Turnledger-Turn"))
		p := m.prompts[len(m.prompts)-1]
		require.Len(t, p.Messages, 2*n+2)
		require.JSONEq(t, fmt.Sprintf(`{"role":"system","content":"now it is %d"}`, n), string(p.Messages[0]))
		require.JSONEq(t, fmt.Sprintf(`{"role":"user","content":"q%d"}`, n), string(p.Messages[2*n+1]))
	}
	require.Equal(t, []string{"q0|a0", "q1|a1", "q2|a2"}, s.said(id))
	// A question that comes twice is asked twice, unless its client says that it comes again.
	again := []string{"X-Stainless-Retry-Count", "1"}
	require.Equal(t, "again", became(s.chat("a%20session%2Fwith%20%C5%BC", "s now it is 2, u q2", again...)))
	m.says("a3")
	require.Equal(t, "turn", became(s.chat("a%20session%2Fwith%20%C5%BC", "s now it is 2, u q2")))
	require.Equal(t, []string{"q0|a0", "q1|a1", "q2|a2", "q2|a3"}, s.said(id))
	key := []string{"Idempotency-Key", "k"}
	require.Equal(t, "turn", became(s.chat("keyed", "u q", key...)))
	require.Equal(t, "turn", became(s.chat("keyed", "u r")))
	require.Equal(t, "again", became(s.chat("keyed", "u q", key...)))
	require.Equal(t, []string{"q|a3", "r|a3"}, s.said("keyed"))
	// The client's own history begins a session whole.
	m.says("a4")
	require.Equal(t, "turn", became(s.chat("whole", "u q1, a a1, u q2, a a2, u q3")))
	require.Equal(t, []string{"q1|a1", "q2|a2", "q3|a4"}, s.said("whole"))
	require.Len(t, m.prompts[len(m.prompts)-1].Messages, 5)
	// What can't be recorded is refused.
	for name, body := range map[string]string{
		"messages": `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]}`,
		"n":        `{"messages":[{"role":"user","content":"q"}],"n":2}`,
	} {
		a := s.do("POST", completions, body, "X-Turnledger-Session", "refused")
		require.Equal(t, http.StatusBadRequest, a.status)
		require.Equal(t, name, a.body["error"].(map[string]any)["param"])
	}
	require.Empty(t, s.turnsOf("refused"))
}

// A client that goes on ten times with an edited history under the old id makes one branch.
func TestAnEditGoesOnInOneBranch(t *testing.T) {
	t.Parallel()
	m := &saying{}
	s := start(t, answeredBy(m))
	history := ""
	for n := range 3 {
		history += fmt.Sprintf("u q%d", n)
		m.says(fmt.Sprint("a", n))
		s.chat("s", history)
		history += fmt.Sprintf(", a a%d, ", n)
	}
	for first, edited := range map[string]string{"first": "u edited, ", "second": "u q0, a a0, u edited, "} {
		branch := ""
		for n := range 10 {
			m.says(fmt.Sprint(first, n))
			a := s.chat("s", strings.TrimSuffix(edited, ", "))
			edited += fmt.Sprintf("a %s%d, u on%d, ", first, n, n)
			if n == 0 {
				require.Equal(t, "fork", became(a))
				branch = a.header.Get("X-Turnledger-Session")
			} else {
				require.Equal(t, "turn", became(a))
			}
			require.Equal(t, branch, a.header.Get("X-Turnledger-Session"))
		}
		// The same again with its client's word is the same turn, there.
		edited = edited[:strings.LastIndex(edited, ", a ")]
		require.Equal(t, "again", became(s.chat("s", edited, "X-Stainless-Retry-Count", "1")))
	}
	require.Len(t, s.branches("s"), 2)
	require.Equal(t, []string{"q0|a0", "q1|a1", "q2|a2"}, s.said("s"))
	// Asked again without a word, the last question is answered anew, each time in a branch of the one before.
	m.says("anew")
	a := s.chat("s", "u q0, a a0, u q1, a a1, u q2")
	require.Equal(t, "fork", became(a))
	require.Equal(t, []string{"q0|a0", "q1|a1", "q2|anew"}, s.said(a.header.Get("X-Turnledger-Session")))
}

// A client that still has redacted words sends them with each call: nothing of them comes back, and nothing forks.
func TestRedactedWordsOfAHistoryStayAway(t *testing.T) {
	t.Parallel()
	m := &saying{}
	s := start(t, answeredBy(m))
	history := ""
	ask := func(n int) {
		history += fmt.Sprintf("u q%d", n)
		m.says(fmt.Sprint("a", n))
		require.Equal(t, "turn", became(s.chat("s", history)))
		history += fmt.Sprintf(", a a%d, ", n)
	}
	for n := range 4 {
		ask(n)
	}
	for _, n := range []int{1, 3} {
		_, err := s.services.History.RedactTurn(t.Context(), "s", decide.Redact{TurnID: s.turnsOf("s")[n].ID})
		require.NoError(t, err)
	}
	for n := range 10 {
		ask(4 + n)
	}
	require.Empty(t, s.branches("s"))
	require.Equal(t, []string{"q0|a0", "q2|a2", "q4|a4"}, s.said("s")[:3])
	require.Len(t, s.said("s"), 12)
}

// Real conversations leave the same log however a client sends them.
func TestRealConversationsOfCompletions(t *testing.T) {
	t.Parallel()
	m := &saying{}
	s := start(t, answeredBy(m))
	seen := map[string]int{}
	for _, file := range testdata.ConversationFiles(t) {
		for _, c := range testdata.ReadConversations(t, []string{file}) {
			exchanges := exchangesOf(t, c)
			exchanges = exchanges[:min(len(exchanges), 10)]
			if len(exchanges) < 2 || repeated(exchanges) || seen[file] == 3 {
				continue
			}
			seen[file]++
			var want []string
			for _, way := range []string{"whole", "last", "trimmed", "in turns"} {
				id := way + "-" + file[strings.LastIndex(file, "/")+1:] + fmt.Sprint(seen[file])
				id = strings.ReplaceAll(id, " ", "-")
				for n := range exchanges {
					s.exchange(m, id, way, exchanges, n)
				}
				got := s.kept(id)
				if want == nil {
					want = got
				}
				require.Equal(t, want, got, "%s %s", way, c.ID)
				require.Len(t, s.turnsOf(id), len(exchanges))
				require.Empty(t, s.branches(id), "%s %s", way, c.ID)
			}
		}
	}
	require.NotEmpty(t, seen)
}

// exchange sends an exchange of a conversation: what is asked, and then each output until the last answer.
func (s *stack) exchange(m *saying, id, way string, all [][]json.RawMessage, n int) {
	s.t.Helper()
	if way == "in turns" {
		way = []string{"whole", "trimmed"}[n%2]
	}
	var before []json.RawMessage
	from := 0
	if way == "trimmed" {
		from = max(0, n-2)
	}
	for _, e := range all[from:n] {
		before = append(before, e...)
	}
	if way == "last" {
		before = nil
	}
	e := all[n]
	sent := 0
	for at := 0; at < len(e); {
		for at < len(e) && role(e[at]) != message.Assistant {
			at++
		}
		asked := at
		m.next = nil
		for at < len(e) && role(e[at]) == message.Assistant {
			m.next = append(m.next, partsOf(e[at])...)
			at++
		}
		if len(m.next) == 0 {
			return
		}
		given := append([]json.RawMessage{}, before...)
		if way == "last" {
			given = e[sent:asked]
		} else {
			given = append(given, e[:asked]...)
		}
		s.chatWith(id, given)
		sent = asked + 1
		if way == "last" {
			sent = at
		}
	}
}

func role(raw json.RawMessage) string { return message.Parse(raw).Role() }

// partsOf returns an assistant's message as parts of an answer.
func partsOf(raw json.RawMessage) (out []services.AnswerPart) {
	for _, i := range message.Items(raw) {
		switch {
		case i.IsCall():
			out = append(out, services.AnswerPart{
				Kind: services.PartCall, CallID: i.CallID(), Name: i.Name(), Text: i.Text("arguments"),
			})
		default:
			out = append(out, services.AnswerPart{Kind: services.PartText, Text: i.Words()})
		}
	}
	return out
}

// kept returns what a session has, as items without their ids.
func (s *stack) kept(id string) (out []string) {
	s.t.Helper()
	for _, t := range s.turnsOf(id) {
		for _, half := range []json.RawMessage{t.Question.QuestionMessages, t.Answer.AnswerMessages} {
			for _, raw := range message.ParseList(half) {
				out = append(out, string(raw.JSON()))
			}
		}
		out = append(out, "--")
	}
	return out
}

// exchangesOf returns a conversation cut before each question that follows an answer.
func exchangesOf(t *testing.T, c testdata.Conversation) (out [][]json.RawMessage) {
	t.Helper()
	answered := true
	for _, m := range c.Messages {
		raw, err := json.Marshal(m)
		require.NoError(t, err)
		if r := role(raw); r == message.System {
			continue
		} else if r == message.User && answered {
			out, answered = append(out, nil), false
		} else if r != message.User {
			answered = true
		}
		if len(out) == 0 {
			return nil
		}
		out[len(out)-1] = append(out[len(out)-1], raw)
	}
	for n, e := range out {
		if role(e[len(e)-1]) != message.Assistant || len(message.Parse(e[len(e)-1]).Words()) == 0 {
			return out[:n]
		}
	}
	return out
}

func repeated(exchanges [][]json.RawMessage) bool {
	seen := map[string]bool{}
	for _, e := range exchanges {
		for _, raw := range e {
			key := string(raw)
			if role(raw) != message.Tool && seen[key] {
				return true
			}
			seen[key] = true
		}
	}
	return false
}

// A run with a tool, as the official client makes it, streamed with its accumulator, too: the ids of calls are the same
// in the answer and in the log, and a call's output extends its turn.
func TestACompletionWithATool(t *testing.T) {
	t.Parallel()
	s := start(t, answeredBy(answer.Echo{}))
	for _, way := range []string{"whole", "last", "outputs"} {
		for _, streamed := range []bool{false, true} {
			id := fmt.Sprint("tool-", way, streamed)
			c := s.client(option.WithHeader("X-Turnledger-Session", id))
			p := sdk.ChatCompletionNewParams{
				Model: "echo", Messages: []sdk.ChatCompletionMessageParamUnion{sdk.UserMessage("Oslo")},
				Tools: []sdk.ChatCompletionToolUnionParam{sdk.ChatCompletionFunctionTool(sdk.FunctionDefinitionParam{
					Name: "weather", Parameters: sdk.FunctionParameters{"type": "object"},
				})},
			}
			ask := func() sdk.ChatCompletionMessage {
				if !streamed {
					out, err := c.Chat.Completions.New(t.Context(), p)
					require.NoError(t, err)
					return out.Choices[0].Message
				}
				stream := c.Chat.Completions.NewStreaming(t.Context(), p)
				acc := sdk.ChatCompletionAccumulator{}
				for stream.Next() {
					require.True(t, acc.AddChunk(stream.Current()))
				}
				require.NoError(t, stream.Err())
				return acc.Choices[0].Message
			}
			first := ask()
			require.Len(t, first.ToolCalls, 1)
			call := first.ToolCalls[0].ID
			require.Contains(t, string(s.turnsOf(id)[0].Answer.AnswerMessages), `"`+call+`"`)
			output := sdk.ToolMessage("sunny", call)
			switch way {
			case "whole":
				p.Messages = append(p.Messages, first.ToParam(), output)
			case "last":
				p.Messages = []sdk.ChatCompletionMessageParamUnion{first.ToParam(), output}
			default:
				p.Messages = []sdk.ChatCompletionMessageParamUnion{output}
			}
			second := ask()
			require.Contains(t, second.Content, "You said: sunny (2 messages before)")
			turns := s.turnsOf(id)
			require.Len(t, turns, 1)
			require.Len(t, s.kept(id), 5, "question, call, output, answer")
		}
	}
}

// slow is a model that says a word, and then waits until its answer is ended.
type slow struct {
	saying

	word  string
	ended chan struct{}
	asked chan struct{}
}

func (m *slow) Answer(
	ctx context.Context, _ services.Prompt, emit func(services.AnswerPiece),
) (services.ModelAnswer, error) {
	if m.word != "" {
		emit(services.AnswerPiece{AnswerPart: services.AnswerPart{Kind: services.PartText, Text: m.word}})
	}
	m.asked <- struct{}{}
	<-ctx.Done()
	close(m.ended)
	return services.ModelAnswer{}, ctx.Err()
}

// A hang-up ends an answer. What was streamed stands; without a word the turn has no answer.
func TestAHangUpEndsACompletion(t *testing.T) {
	t.Parallel()
	for _, streamed := range []bool{true, false} {
		m := &slow{word: "half", ended: make(chan struct{}), asked: make(chan struct{}, 1)}
		s := start(t, answeredBy(m))
		ctx, hangUp := context.WithCancel(t.Context())
		body := fmt.Sprintf(`{"messages":[{"role":"user","content":"q"}],"stream":%t}`, streamed)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+completions, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("X-Turnledger-Session", "s")
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, err := http.DefaultClient.Do(r); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}()
		<-m.asked
		hangUp()
		<-done
		<-m.ended
		if streamed {
			hang.Until(t, func() bool { return len(s.said("s")) == 1 })
			require.Equal(t, []string{"q|half"}, s.said("s"))
		} else {
			require.Equal(t, session.Pending, s.turnsOf("s")[0].Status)
		}
	}
}

// A bound caller begins a session, linked to it, and another's is none to it.
func TestABoundCallerBeginsASessionByACompletion(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	body := `{"messages":[{"role":"user","content":"q"}],"metadata":{"session_id":"adas"}}`
	for _, want := range []int{200, 200} {
		require.Equal(t, want, s.as("ada", "POST", completions, body).status)
	}
	r, err := s.services.Reader.Read(t.Context(), services.Ask{SessionID: "adas", AllTurns: true})
	require.NoError(t, err)
	require.Equal(t, "ada", r.State.Identity)
	require.Len(t, r.State.Turns, 2)
	require.Equal(t, http.StatusNotFound, s.as("bob", "POST", completions, body).status)
	require.Len(t, s.turnsOf("adas"), 2)
}
