package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/natstest"
	"github.com/turnledger/turnledger/projections/recent/redis/redistest"
)

// The twelve regression tests of the context invariants (§9: seven of the store, three
// of the builder, two end to end), on every backend of the recent view and on one and
// three replicas, over HTTP and the real binary.

// onEveryBackend runs tests, each in threads of its own, on a server of each kind.
func onEveryBackend(t *testing.T, tests map[string]func(t *testing.T, p *process, thread string)) {
	t.Helper()
	t.Parallel()
	for replicas, nats := range map[int]func(t *testing.T) []string{
		1: func(*testing.T) []string { return nil },
		3: func(t *testing.T) []string {
			c := natstest.StartCluster(t)
			return []string{"TURNLEDGER_NATS_URL=" + c.Servers[0].ClientURL() + "," + c.Servers[1].ClientURL(), "TURNLEDGER_NATS_LISTEN=", "TURNLEDGER_REPLICAS=3"}
		},
	} {
		for backend, env := range map[string]func(t *testing.T) []string{
			"memory": func(*testing.T) []string { return nil },
			"redis":  func(t *testing.T) []string { return []string{"TURNLEDGER_REDIS_URL=" + redistest.Start(t).URL()} },
			"log only": func(t *testing.T) []string {
				gone := redistest.Start(t)
				gone.Stop()
				return []string{"TURNLEDGER_REDIS_URL=" + gone.URL()}
			},
		} {
			t.Run(fmt.Sprintf("%s, %d replicas", backend, replicas), func(t *testing.T) {
				t.Parallel()
				roles := "api,context,recent,chat"
				if backend == "log only" {
					roles = "api,context,chat"
				}
				model := newScripted(t)
				p := start(t, append(append(nats(t), env(t)...), model.env()...), "serve", "--data-dir", dataDir(t), "--roles", roles)
				for name, test := range tests {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						test(t, p, strings.ReplaceAll(name, " ", "-"))
					})
				}
			})
		}
	}
}

const (
	firstQuestion = "Who is Donald Trump?"
	firstAnswer   = "Donald Trump is an American politician."
)

func (p *process) build(t testing.TB, thread string, body map[string]any) map[string]any {
	t.Helper()
	return p.must(t, http.StatusOK, http.MethodPost, session(thread)+"/context", body)
}

// lines gives messages as "role: content".
func lines(messages any) (out []string) {
	for _, m := range messages.([]any) {
		m := m.(map[string]any)
		out = append(out, fmt.Sprint(m["role"], ": ", m["content"]))
	}
	return out
}

func (p *process) turnsOf(t testing.TB, thread string) float64 {
	t.Helper()
	return p.must(t, http.StatusOK, http.MethodGet, session(thread), nil)["turns"].(float64)
}

// TestThreadsStore: the seven of the store.
func TestThreadsStore(t *testing.T) {
	onEveryBackend(t, map[string]func(*testing.T, *process, string){
		"thread persistence across multiple requests": func(t *testing.T, p *process, thread string) {
			p.turn(t, thread, "r1", firstQuestion, firstAnswer)
			for range 3 {
				require.Equal(t, []string{"user: " + firstQuestion, "assistant: " + firstAnswer}, lines(p.context(t, thread)))
			}
		},
		"turns accumulate": func(t *testing.T, p *process, thread string) {
			for i := range 5 {
				p.turn(t, thread, fmt.Sprint(i), "q", "a")
				require.EqualValues(t, i+1, p.turnsOf(t, thread))
			}
		},
		"turn order is preserved": func(t *testing.T, p *process, thread string) {
			var want []string
			for i := range 5 {
				p.turn(t, thread, fmt.Sprint(9-i), fmt.Sprint("q", i), fmt.Sprint("a", i))
				want = append(want, fmt.Sprint("user: q", i), fmt.Sprint("assistant: a", i))
			}
			require.Equal(t, want, lines(p.context(t, thread)))
		},
		"a turn is available at once": func(t *testing.T, p *process, thread string) {
			for i := range 20 {
				p.turn(t, thread, fmt.Sprint(i), "q", "a")
				require.Len(t, p.context(t, thread), 2*(i+1))
			}
		},
		"an existing thread is used again, never replaced": func(t *testing.T, p *process, thread string) {
			turn := p.turn(t, thread, "r1", firstQuestion, firstAnswer)
			out := p.must(t, http.StatusOK, http.MethodPost, session(thread)+"/turns", map[string]any{"request_id": "r1", "question_neutral": "another"})
			require.Equal(t, turn, out["turn_id"])
			require.Equal(t, []string{"user: " + firstQuestion, "assistant: " + firstAnswer}, lines(p.context(t, thread)))
		},
		"reading makes no thread": func(t *testing.T, p *process, thread string) {
			require.Empty(t, p.context(t, thread))
			p.must(t, http.StatusOK, http.MethodGet, session(thread)+"/turns", nil)
			require.Equal(t, false, p.must(t, http.StatusOK, http.MethodGet, session(thread), nil)["found"])
		},
		"a window keeps the last turns and takes none away": func(t *testing.T, p *process, thread string) {
			for i := range 8 {
				p.turn(t, thread, fmt.Sprint(i), fmt.Sprint("q", i), fmt.Sprint("a", i))
			}
			out := p.build(t, thread, map[string]any{"message": "m", "max_messages": 5})
			require.Equal(t, []string{"user: q6", "assistant: a6", "user: q7", "assistant: a7", "user: m"}, lines(out["messages"]))
			require.EqualValues(t, 6, out["dropped_turns"])
			require.EqualValues(t, 8, p.turnsOf(t, thread))
			require.Len(t, p.context(t, thread), 16)
		},
	})
}

// TestContextBuilderIntegration: the three of the builder.
func TestContextBuilderIntegration(t *testing.T) {
	onEveryBackend(t, map[string]func(*testing.T, *process, string){
		"sees previous turns": func(t *testing.T, p *process, thread string) {
			p.turn(t, thread, "r1", firstQuestion, firstAnswer)
			out := p.build(t, thread, map[string]any{"message": "who are his children"})
			require.EqualValues(t, 2, out["history_messages"])
			require.Equal(t, []string{"user: " + firstQuestion, "assistant: " + firstAnswer, "user: who are his children"}, lines(out["messages"]))
			require.Equal(t, true, out["session_found"])
		},
		"the order is system, history, current message": func(t *testing.T, p *process, thread string) {
			p.turn(t, thread, "r1", firstQuestion, firstAnswer)
			out := p.build(t, thread, map[string]any{"message": "m", "system_prompt": "Be kind."})
			require.Equal(t, []string{"system: Be kind.", "user: " + firstQuestion, "assistant: " + firstAnswer, "user: m"}, lines(out["messages"]))
			out = p.build(t, thread, map[string]any{"message": "m", "system_prompt": "Be kind.", "format": "anthropic"})
			require.Equal(t, "Be kind.", out["system"])
			require.Equal(t, []string{"user: " + firstQuestion, "assistant: " + firstAnswer, "user: m"}, lines(out["messages"]))
		},
		"only reads": func(t *testing.T, p *process, thread string) {
			out := p.build(t, thread, map[string]any{"message": "m", "memory": true, "rewrite": true})
			require.Equal(t, []string{"user: m"}, lines(out["messages"]))
			require.Equal(t, false, out["session_found"])
			require.Equal(t, false, p.must(t, http.StatusOK, http.MethodGet, session(thread), nil)["found"])
			p.turn(t, thread, "r1", "q", "a")
			p.build(t, thread, map[string]any{"message": "m"})
			require.EqualValues(t, 1, p.turnsOf(t, thread))
		},
	})
}

// TestChatAPIContext: the two end to end, with a model that answers from its prompt.
func TestChatAPIContext(t *testing.T) {
	onEveryBackend(t, map[string]func(*testing.T, *process, string){
		"a follow-up is answered from the thread": func(t *testing.T, p *process, thread string) {
			p.ask(t, thread, content(firstQuestion))
			out := p.ask(t, thread, content("who are his children"))
			require.Contains(t, out["content"], "Ivanka")
			require.NotContains(t, out["content"], "John")
			require.EqualValues(t, 1, out["history_turns"])
		},
		"the thread id of the request is the thread": func(t *testing.T, p *process, thread string) {
			for i := range 3 {
				require.Equal(t, thread, p.ask(t, thread, content(firstQuestion))["thread_id"])
				require.EqualValues(t, i+1, p.turnsOf(t, thread))
			}
			made := p.ask(t, "new", content(firstQuestion))["thread_id"].(string)
			require.NotEqual(t, "new", made)
			require.Contains(t, p.ask(t, made, content("who are his children"))["content"], "Ivanka")
			require.Contains(t, p.ask(t, thread+"-other", content("who are his children"))["content"], "John Doe", "threads know nothing of each other")
		},
	})
}
