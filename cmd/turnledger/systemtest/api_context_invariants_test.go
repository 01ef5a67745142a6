package systemtest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
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
	for replicas, nats := range map[int]func(t *testing.T) []string{
		1: func(*testing.T) []string { return nil },
		3: func(t *testing.T) []string {
			c := natstest.StartCluster(t)
			return []string{"TURNLEDGER_NATS_URL=" + c.Servers[0].ClientURL() + "," + c.Servers[1].ClientURL(),
				"TURNLEDGER_NATS_LISTEN=", "TURNLEDGER_REPLICAS=3"}
		},
	} {
		for backend, env := range map[string]func(t *testing.T) []string{
			"memory": func(*testing.T) []string { return nil },
			"redis": func(t *testing.T) []string {
				return []string{"TURNLEDGER_REDIS_URL=" + redistest.Start(t).URL()}
			},
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
				model := stack.NewModel(t)
				p := stack.Serve(t, append(append(nats(t), env(t)...), model.Env()...), "--roles", roles)
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
