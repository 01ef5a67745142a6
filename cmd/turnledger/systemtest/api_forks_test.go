package systemtest_test

import (
	"fmt"
	"maps"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
)

// 64 clients of two processes write on one session and fork it while a turn of theirs is pending, each with a request
// of its own that is sent twice at once. Each request makes one branch. It has all turns that were answered before the
// request, in the session's order, none that was pending when the branch was there, and then its own.
func TestManyForkOneSessionAtOnce(t *testing.T) {
	t.Parallel()
	const clients = 64
	nats, env := stack.FreeAddress(t), []string{"TURNLEDGER_PARTITIONS=4"}
	a := stack.Serve(t, append(stack.ServeNATS(nats), env...))
	b := stack.Start(t, append(stack.JoinNATS(nats), env...), "serve")
	processes := []*stack.Process{a, b}

	var mu sync.Mutex
	begun, answered := map[string]bool{}, map[string]bool{}
	copied := func(of map[string]bool) map[string]bool {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(of)
	}
	note := func(in map[string]bool, question string) {
		mu.Lock()
		defer mu.Unlock()
		in[question] = true
	}
	before, after := make([]map[string]bool, clients), make([]map[string]bool, clients)
	var all sync.WaitGroup
	for n := range clients {
		all.Go(func() {
			p, branch := processes[n%2], fmt.Sprint("branch-", n)
			post := func(path string, want int, body map[string]any) {
				status, out, err := p.Call(t.Context(), http.MethodPost, path, body)
				assert.NoError(t, err)
				assert.Equal(t, want, status, out)
			}
			start := func(session, question string) {
				post(stack.SessionPath(session)+"/turns", http.StatusCreated,
					map[string]any{"request_id": question, "question_neutral": question})
			}
			finish := func(session, question string) {
				note(begun, question)
				post(stack.SessionPath(session)+"/turns/"+events.TurnID(session, question).String()+"/finalize",
					http.StatusOK, map[string]any{"answer_neutral": "a"})
				if session == "stem" { // no other branch sees what is answered on one
					note(answered, question)
				}
			}
			start("stem", fmt.Sprint(n, " pending"))
			start("stem", fmt.Sprint(n, " before"))
			finish("stem", fmt.Sprint(n, " before"))
			before[n] = copied(answered)
			var made [2]int
			var twice errgroup.Group
			for k, p := range processes {
				twice.Go(func() (err error) {
					var out map[string]any
					made[k], out, err = p.Call(t.Context(), http.MethodPost, stack.SessionPath("stem")+"/fork",
						map[string]any{"request_id": branch, "session_id": branch})
					assert.Equal(t, branch, out["session_id"], out)
					return err
				})
			}
			assert.NoError(t, twice.Wait())
			assert.ElementsMatch(t, []int{http.StatusCreated, http.StatusOK}, made)
			after[n] = copied(begun)
			finish("stem", fmt.Sprint(n, " pending"))
			start(branch, "of "+branch)
			finish(branch, "of "+branch)
		})
	}
	all.Wait()
	listed := func(p *stack.Process, session string) (out []string) {
		for _, turn := range p.Get(t, stack.SessionPath(session)+"/turns?limit=1000")["turns"].([]any) {
			out = append(out, turn.(map[string]any)["question_neutral"].(string))
		}
		return out
	}
	order := listed(a, "stem")
	require.Len(t, order, 2*clients)
	for n := range clients {
		branch := fmt.Sprint("branch-", n)
		shown := listed(processes[(n+1)%2], branch)
		require.Equal(t, "of "+branch, shown[len(shown)-1])
		shared := shown[:len(shown)-1]
		has := map[string]bool{}
		for _, question := range shared {
			has[question] = true
			require.True(t, after[n][question], "the answer of %s was begun after %s was forked", question, branch)
		}
		var want []string
		for _, question := range order {
			if has[question] {
				want = append(want, question)
			}
		}
		require.Equal(t, want, shared)
		for question := range before[n] {
			require.True(t, has[question], "%s was there before %s was forked", question, branch)
		}
		var prompt []string
		messages := processes[n%2].BuildContext(t, branch,
			map[string]any{"message": "now", "max_messages": 10_000})["messages"].([]any)
		for i := 0; i < len(messages)-1; i += 2 {
			prompt = append(prompt, messages[i].(map[string]any)["content"].(string))
		}
		require.Equal(t, shown, prompt)
	}
}
