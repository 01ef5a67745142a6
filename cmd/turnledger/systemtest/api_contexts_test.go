package systemtest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/prompttest"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

const (
	firstQuestion = "Who is Donald Trump?"
	firstAnswer   = "Donald Trump is an American politician."
)

// The twelve regression tests of the context invariants (§9): seven of the store, three of the builder, and two end to
// end with a model that answers from its prompt. They run over HTTP and the real binary, each in threads of its own, on
// every backend of the recent view, and on one and three replicas.
//
//conformance:i66 i77 i81 i83 h1 i67 i68
//conformance:i15 "a turn is available at once"
//conformance:i11 i28 i29 "a window keeps the last turns and takes none away"
//conformance:i6 i10 i39 "an existing thread is used again, never replaced"
//conformance:i22 "reading makes no thread"
//conformance:i3 i5 i41 i72 "thread persistence across multiple requests"
//conformance:i4 i12 i13 i14 "turn order is preserved"
//conformance:i1 i9 i73 "turns accumulate"
//conformance:i21 i23 "only reads"
//conformance:i2 i69 i71 i74 "sees previous turns"
//conformance:i19 i26 i27 "the order is system, history, current message"
//conformance:i70 f13 "a follow-up is answered from the thread"
//conformance:i35 i36 i37 i38 i75 s24 "the thread id of the request is the thread"
func TestContextInvariants(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, p *stack.Process, thread string){
		"thread persistence across multiple requests": func(t *testing.T, p *stack.Process, thread string) {
			p.RecordTurn(t, thread, "r1", firstQuestion, firstAnswer)
			for range 3 {
				require.Equal(t, []string{"user: " + firstQuestion, "assistant: " + firstAnswer},
					stack.MessageLines(p.Context(t, thread)))
			}
		},
		"turns accumulate": func(t *testing.T, p *stack.Process, thread string) {
			for i := range 5 {
				p.RecordTurn(t, thread, fmt.Sprint(i), "q", "a")
				require.EqualValues(t, i+1, p.TurnCount(t, thread))
			}
		},
		"turn order is preserved": func(t *testing.T, p *stack.Process, thread string) {
			var want []string
			for i := range 5 {
				p.RecordTurn(t, thread, fmt.Sprint(9-i), fmt.Sprint("q", i), fmt.Sprint("a", i))
				want = append(want, fmt.Sprint("user: q", i), fmt.Sprint("assistant: a", i))
			}
			require.Equal(t, want, stack.MessageLines(p.Context(t, thread)))
		},
		"a turn is available at once": func(t *testing.T, p *stack.Process, thread string) {
			for i := range 20 {
				p.RecordTurn(t, thread, fmt.Sprint(i), "q", "a")
				require.Len(t, p.Context(t, thread), 2*(i+1))
			}
		},
		"an existing thread is used again, never replaced": func(t *testing.T, p *stack.Process, thread string) {
			turn := p.RecordTurn(t, thread, "r1", firstQuestion, firstAnswer)
			out := p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath(thread)+"/turns",
				map[string]any{"request_id": "r1", "question_neutral": "another"})
			require.Equal(t, turn, out["turn_id"])
			require.Equal(t, []string{"user: " + firstQuestion, "assistant: " + firstAnswer},
				stack.MessageLines(p.Context(t, thread)))
		},
		"reading makes no thread": func(t *testing.T, p *stack.Process, thread string) {
			require.Empty(t, p.Context(t, thread))
			p.Get(t, stack.SessionPath(thread)+"/turns")
			require.Equal(t, false, p.Get(t, stack.SessionPath(thread))["found"])
		},
		"a window keeps the last turns and takes none away": func(t *testing.T, p *stack.Process, thread string) {
			for i := range 8 {
				p.RecordTurn(t, thread, fmt.Sprint(i), fmt.Sprint("q", i), fmt.Sprint("a", i))
			}
			out := p.BuildContext(t, thread, map[string]any{"message": "m", "max_messages": 5})
			require.Equal(t, []string{"user: q6", "assistant: a6", "user: q7", "assistant: a7", "user: m"},
				stack.MessageLines(out["messages"]))
			require.EqualValues(t, 6, out["dropped_turns"])
			require.EqualValues(t, 8, p.TurnCount(t, thread))
			require.Len(t, p.Context(t, thread), 16)
		},
		"sees previous turns": func(t *testing.T, p *stack.Process, thread string) {
			p.RecordTurn(t, thread, "r1", firstQuestion, firstAnswer)
			out := p.BuildContext(t, thread, map[string]any{"message": "who are his children"})
			require.EqualValues(t, 2, out["history_messages"])
			require.Equal(t, []string{"user: " + firstQuestion, "assistant: " + firstAnswer,
				"user: who are his children"}, stack.MessageLines(out["messages"]))
			require.Equal(t, true, out["session_found"])
		},
		"the order is system, history, current message": func(t *testing.T, p *stack.Process, thread string) {
			p.RecordTurn(t, thread, "r1", firstQuestion, firstAnswer)
			out := p.BuildContext(t, thread, map[string]any{"message": "m", "system_prompt": "Be kind."})
			require.Equal(t, []string{"system: Be kind.", "user: " + firstQuestion, "assistant: " + firstAnswer,
				"user: m"}, stack.MessageLines(out["messages"]))
			out = p.BuildContext(t, thread, map[string]any{"message": "m", "system_prompt": "Be kind.",
				"format": "anthropic"})
			require.Equal(t, "Be kind.", out["system"])
			require.Equal(t, []string{"user: " + firstQuestion, "assistant: " + firstAnswer, "user: m"},
				stack.MessageLines(out["messages"]))
		},
		"only reads": func(t *testing.T, p *stack.Process, thread string) {
			out := p.BuildContext(t, thread, map[string]any{"message": "m", "memory": true, "rewrite": true})
			require.Equal(t, []string{"user: m"}, stack.MessageLines(out["messages"]))
			require.Equal(t, false, out["session_found"])
			require.Equal(t, false, p.Get(t, stack.SessionPath(thread))["found"])
			p.RecordTurn(t, thread, "r1", "q", "a")
			p.BuildContext(t, thread, map[string]any{"message": "m"})
			require.EqualValues(t, 1, p.TurnCount(t, thread))
		},
		"a follow-up is answered from the thread": func(t *testing.T, p *stack.Process, thread string) {
			p.Ask(t, thread, stack.Content(firstQuestion))
			out := p.Ask(t, thread, stack.Content("who are his children"))
			require.Contains(t, out["content"], "Ivanka")
			require.NotContains(t, out["content"], "John")
			require.EqualValues(t, 1, out["history_turns"])
		},
		"the thread id of the request is the thread": func(t *testing.T, p *stack.Process, thread string) {
			for i := range 3 {
				require.Equal(t, thread, p.Ask(t, thread, stack.Content(firstQuestion))["thread_id"])
				require.EqualValues(t, i+1, p.TurnCount(t, thread))
			}
			made := p.Ask(t, "new", stack.Content(firstQuestion))["thread_id"].(string)
			require.NotEqual(t, "new", made)
			require.Contains(t, p.Ask(t, made, stack.Content("who are his children"))["content"], "Ivanka")
			require.Contains(t, p.Ask(t, thread+"-other", stack.Content("who are his children"))["content"], "John Doe",
				"threads know nothing of each other")
		},
	}
	for name, env := range map[string]func(t *testing.T) []string{
		"memory": func(*testing.T) []string { return nil },
		"redis, 3 replicas": func(t *testing.T) []string {
			c := natstest.StartCluster(t)
			return []string{"TURNLEDGER_NATS_URL=" + c.Servers[0].ClientURL() + "," + c.Servers[1].ClientURL(),
				"TURNLEDGER_NATS_LISTEN=", "TURNLEDGER_REPLICAS=3", "TURNLEDGER_REDIS_URL=" + redistest.Start(t).URL()}
		},
		"log only": func(t *testing.T) []string {
			gone := redistest.Start(t)
			gone.Stop()
			return []string{"TURNLEDGER_REDIS_URL=" + gone.URL()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			roles := map[bool]string{true: "api,context,chat", false: "api,context,recent,chat"}[name == "log only"]
			p := stack.Serve(t, append(env(t), stack.NewModel(t).Env()...), "--roles", roles)
			for name, test := range tests {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, p, strings.ReplaceAll(name, " ", "-"))
				})
			}
		})
	}
}

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
		raw := must.Get(json.Marshal(out["messages"]))(t)
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

// TestPromptsWithAllThatCanBeInThem goes through a deployment with a rewriter, the audit
// tables as memory, and rates.
//
//conformance:i24 i25 i51 i55 i56 i64 h27
func TestPromptsWithAllThatCanBeInThem(t *testing.T) {
	t.Parallel()
	rewriter := modeltest.New(t, func(prompt []string) modeltest.Answer {
		if strings.Contains(prompt[len(prompt)-1], "teal") {
			return modeltest.Answer{Text: "Which paint is teal?"}
		}
		return modeltest.Answer{Status: http.StatusInternalServerError}
	})
	p := stack.Serve(t, []string{
		"TURNLEDGER_REWRITER_URL=" + rewriter.URL + "/v1", "TURNLEDGER_REWRITER_NAME=r",
		"TURNLEDGER_POSTGRES_URL=" + pg.URL(t),
		"TURNLEDGER_RATE_SESSION=4/1h", "TURNLEDGER_MODEL_NAME=gpt-4o", "TURNLEDGER_MEMORY_BUDGET=5s",
	})

	require.NotContains(t, p.Log.String(), "no effect")
	p.LinkIdentity(t, "old", "ada")
	secret := p.RecordTurn(t, "old", "r1", "My favourite paint is teal.", "Noted.")
	ask := func(body map[string]any) map[string]any {
		return p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("new")+"/context", body)
	}
	body := map[string]any{"message": "which paint?", "memory": true, "rewrite": true, "identity_id": "ada",
		"system_prompt": "Be kind."}
	out := ask(body)
	const teal = "- User: My favourite paint is teal. Assistant: Noted."
	require.Subset(t, out, map[string]any{"memory_snippet": teal, "rewritten_query": "Which paint is teal?",
		"session_found": false})
	require.Equal(t, []string{"system: Be kind.", "system: Long-term memory:\n" + teal, "user: " +
		"Original user message:\nwhich paint?\n\n---\n\nContextualized query:\nWhich paint is teal?"}, stack.MessageLines(out["messages"]))

	p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("old")+"/turns/"+secret+"/redact", nil)
	out = ask(body)
	require.Nil(t, out["memory_snippet"])
	require.Equal(t, true, out["rewrite_fallback"])
	require.Equal(t, map[string]any{"role": "user", "content": "which paint?"}, out["messages"].([]any)[1])

	for range 2 {
		ask(map[string]any{"message": "m", "conversation_history": "no list at all"})
	}
	out = p.Must(t, http.StatusTooManyRequests, http.MethodPost, stack.SessionPath("new")+"/context", body)
	require.Equal(t, "rate_limited", out["code"])
	resp := must.Get(http.Post(p.URL+stack.SessionPath("new")+"/context", "application/json",
		strings.NewReader(`{"message":"m"}`)))(t)
	require.NoError(t, resp.Body.Close())
	require.NotEmpty(t, resp.Header.Get("Retry-After"))
	require.Equal(t, false, p.Get(t, stack.SessionPath("new"))["found"], "a context makes nothing")
	p.WaitLog(t, `route="POST /v1/sessions/\{session_id\}/context" status=200 duration=\S+ .*`+
		`memory_duration=\d\S+ rewriter_duration=\d\S+ prompt_duration=\d\S+\n`)
}
