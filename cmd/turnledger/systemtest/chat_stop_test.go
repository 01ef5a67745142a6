package systemtest_test

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

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
