package deployment_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	natstest "github.com/turnledger/turnledger/deploy/testkit/nats"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/services/client"
)

// The log goes from one replica to three while two processes serve it. Every acknowledged turn is there, once and in
// order, and a process that is configured with three replicas starts.
func TestReplicasOverTheCommandLine(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t)
	var urls []string
	for _, s := range c.Servers {
		urls = append(urls, s.ClientURL())
	}
	env := []string{"TURNLEDGER_NATS_URL=" + strings.Join(urls, ","), "TURNLEDGER_NATS_LISTEN="}
	a, b := stack.Start(t, env, "serve"), stack.Start(t, env, "serve")
	stop := make(chan struct{})
	wrote := make([]atomic.Int64, 4)
	var all sync.WaitGroup
	for w := range wrote {
		all.Go(func() {
			r, err := client.New(client.Config{URL: []*stack.Process{a, b}[w%2].URL})
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Close()
			for {
				select {
				case <-stop:
					return
				default:
				}
				i, id := wrote[w].Load(), fmt.Sprint("load", w)
				turn, err := r.OnRequestStarted(t.Context(),
					client.Start{SessionID: id, RequestID: fmt.Sprint("r", i),
						QuestionNeutral: fmt.Sprint("question ", i)})
				if err == nil {
					err = r.OnRequestFinalized(t.Context(),
						client.Finalize{SessionID: id, TurnID: turn, AnswerNeutral: fmt.Sprint("answer ", i)})
				}
				if err != nil {
					t.Error(err)
					return
				}
				wrote[w].Add(1)
			}
		})
	}
	code, out, errs := a.Run(t, "streams", "plan", "--replicas", "3")
	require.Equal(t, stack.ExitDone, code, errs)
	require.Contains(t, out, "TURNS-0: replicas: 1, asked for: 3")
	require.Contains(t, errs, "turnledger streams apply")
	code, out, errs = a.Run(t, "streams", "apply", "--replicas", "3")
	require.Equal(t, stack.ExitDone, code, errs)
	require.NotContains(t, out, "asked for")
	require.Regexp(t, `TURNS-0 +log +file +3 `, out)
	for w := range wrote {
		from := wrote[w].Load()
		hang.Until(t, func() bool { return wrote[w].Load() > from+5 })
	}
	close(stop)
	all.Wait()
	third := stack.Start(t, append(env, "TURNLEDGER_REPLICAS=3"), "serve")
	for w := range wrote {
		for _, p := range []*stack.Process{a, b, third} {
			require.Equal(t, stack.Exchanges(int(wrote[w].Load())), p.Context(t, fmt.Sprint("load", w)))
		}
	}
	refused := stack.Launch(t, env, "serve")
	hang.Until(t, func() bool { return strings.Contains(refused.Log.String(), "set TURNLEDGER_REPLICAS=3") })
	a.Get(t, "/readyz")
}

// The number of replicas is changed under readers and writers that don't pause: each reader is shown all that was
// acknowledged before it asked, or 503.
func TestReplicasChangeUnderReadersThatDontPause(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t)
	env := []string{"TURNLEDGER_NATS_URL=" + strings.Join(c.URLs(), ","), "TURNLEDGER_NATS_LISTEN=",
		"TURNLEDGER_WINDOW_BLOCKS=false"} // a full window always has 20 messages
	p := stack.Start(t, env, "serve", "--roles", "api,context")
	rounds := 1
	if stack.Long() {
		rounds = 20
	}
	var acknowledged [3]atomic.Int64
	var shown atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range acknowledged {
		id := fmt.Sprint("s", i)
		all.Go(func() {
			a := stack.NewCaller(p.URL, true)
			for n := 0; ctx.Err() == nil; n++ {
				status, _, err := a.Call(ctx, http.MethodPost, stack.SessionPath(id)+"/turns",
					map[string]any{"request_id": fmt.Sprint("r", n), "question_neutral": "q"})
				if err == nil && status == http.StatusCreated {
					acknowledged[i].Add(1)
				}
			}
		})
		all.Go(func() {
			a := stack.NewCaller(p.URL, i%2 == 0)
			for ctx.Err() == nil {
				least := min(acknowledged[i].Load(), 20)
				status, got, err := a.ReadContext(ctx, id)
				if err == nil && status == http.StatusOK {
					shown.Add(1)
					assert.GreaterOrEqual(t, int64(len(got)), least, "%s lacks what was acknowledged", id)
				}
			}
		})
	}
	for range rounds {
		for _, n := range []string{"3", "1"} {
			code, _, errs := p.Run(t, "streams", "apply", "--replicas", n)
			require.Equal(t, stack.ExitDone, code, errs)
		}
	}
	stop()
	all.Wait()
	require.Positive(t, shown.Load())
	for i := range acknowledged {
		require.Positive(t, acknowledged[i].Load())
	}
}
