package systemtest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/pause"
)

// What is asked for after a redaction was acknowledged shows no summary of the turn: contexts, those of the past,
// lists, explanations, from whichever process. So it is where the summary stood before, and where it is recorded
// meanwhile, in the session of the turn and in a branch that shares it.
func TestNoSummaryIsShownAfterARedaction(t *testing.T) {
	t.Parallel()
	rounds, seed := 20, uint64(1)
	if stack.Long() {
		rounds, seed = 1000, stack.Seed(t)
	}
	nats := stack.FreeAddress(t)
	env := []string{"TURNLEDGER_PARTITIONS=4"} // a branch may stand in another one than its parent
	first := stack.Start(t, append(stack.ServeNATS(nats), env...), "serve", "--roles", "api,context,eraser",
		"--data-dir", stack.DataDir(t))
	second := stack.Start(t, append(stack.JoinNATS(nats), env...), "serve", "--roles", "api,context")
	rng := rand.New(rand.NewPCG(seed, 0))
	for n := range rounds {
		r := &summaryRace{T: t, session: fmt.Sprint("s-", n), late: rng.IntN(2) == 0, gone: rng.IntN(2),
			readers: []*stack.Process{first, second}, posts: first, redacts: second}
		if rng.IntN(4) == 0 {
			r.posts, r.redacts = r.redacts, r.posts
		}
		r.prepare(rng.IntN(2) == 0)
		r.run()
		stands := r.stands(second)
		if rng.IntN(8) == 0 {
			after := second.RecordTurn(t, r.summarised, "after", "question", "answer")
			said := second.Done(t, "explain", r.summarised, after, "--summary", "--max-messages", "2")
			require.Equal(t, stands, strings.Contains(said, "summarised"), said)
		}
		require.False(t, t.Failed(), "round %d of seed %d", n, seed)
	}
}

// summaryRace is the redaction of a turn that a summary covers, and what is read meanwhile. The summary covers two
// turns of session, and is one of summarised, which is that session or its branch.
type summaryRace struct {
	*testing.T
	session, summarised string
	turns               [2]string
	// late: the summary is recorded while the turn is redacted. gone says which turn that is.
	late           bool
	gone           int
	readers        []*stack.Process
	posts, redacts *stack.Process
	// before is the position of the last turn.
	before string
}

// prepare records the turns, and the summary if it is not late.
func (r *summaryRace) prepare(branch bool) {
	r.Helper()
	record := func(session, request string) (id, position string) {
		out := r.posts.Must(r, http.StatusCreated, http.MethodPost, stack.SessionPath(session)+"/turns",
			map[string]any{"request_id": request, "question_neutral": "question", "answer_neutral": "answer"})
		return out["turn_id"].(string), out["position"].(string)
	}
	for i := range r.turns {
		r.turns[i], _ = record(r.session, fmt.Sprint("r", i))
	}
	if r.summarised = r.session; branch {
		r.summarised += "-branch"
		r.posts.Must(r, http.StatusCreated, http.MethodPost, stack.SessionPath(r.session)+"/fork",
			map[string]any{"request_id": "f", "session_id": r.summarised})
	}
	if !r.late {
		require.Equal(r, http.StatusCreated, r.post())
	}
	_, r.before = record(r.summarised, "last")
	for read := range 3 {
		for _, p := range r.readers {
			counts, _ := r.read(p, read)
			require.Equal(r, r.late, len(counts) == 0, "it stands at first")
		}
	}
}

// post records the summary.
func (r *summaryRace) post() int {
	status, _, err := r.posts.Call(r.Context(), http.MethodPost, stack.SessionPath(r.summarised)+"/summaries",
		map[string]any{"request_id": "m", "through_turn_id": r.turns[1], "summary_neutral": "SECRET"})
	assert.NoError(r, err)
	return status
}

// run redacts the turn while others read, until they have read once more after the redaction was acknowledged.
func (r *summaryRace) run() {
	r.Helper()
	var redacted atomic.Bool
	var wg sync.WaitGroup
	for i, p := range r.readers {
		for read := range 3 {
			wg.Go(func() {
				for after := false; !after; {
					after = redacted.Load()
					counts, ok := r.read(p, read)
					if !ok {
						return
					}
					if after {
						r.check(counts, fmt.Sprintf("reader %d, read %d", i, read))
					}
				}
			})
		}
	}
	if r.late {
		wg.Go(func() {
			status := r.post()
			ctx, cancel := context.WithTimeout(r.Context(), hang.Limit)
			defer cancel()
			for status == http.StatusServiceUnavailable && pause.For(ctx, 10*time.Millisecond) {
				status = r.post() // it was voided while the call repeated it
			}
			assert.Contains(r, []int{http.StatusCreated, http.StatusConflict}, status)
		})
	}
	r.redacts.Must(r, http.StatusOK, http.MethodPost,
		stack.SessionPath(r.session)+"/turns/"+r.turns[r.gone]+"/redact", nil)
	redacted.Store(true)
	wg.Wait()
}

// read returns the numbers of turns that the summaries cover which an answer shows: a context, one of the past, a list.
func (r *summaryRace) read(p *stack.Process, read int) (counts []float64, ok bool) {
	asked := map[string]any{"message": "next", "summary": true, "max_messages": 2}
	method, path, body := http.MethodPost, stack.SessionPath(r.summarised), any(asked)
	switch read {
	case 0:
		path += "/context"
	case 1:
		path += "/context"
		asked["as_of"] = map[string]any{"position": r.before}
	default:
		method, path, body = http.MethodGet, path+"/summaries", nil // a GET with a body is refused
	}
	status, got, err := p.Call(context.Background(), method, path, body)
	if !assert.NoError(r, err) || !assert.Equal(r, http.StatusOK, status) {
		return nil, false
	}
	if shown, is := got["summary"].(map[string]any); is {
		counts = append(counts, shown["turns"].(float64))
	} else {
		assert.NotContains(r, fmt.Sprint(got["messages"]), "SECRET")
	}
	list, _ := got["summaries"].([]any)
	for _, m := range list {
		counts = append(counts, m.(map[string]any)["turns"].(float64))
	}
	return counts, true
}

// check says what may stand after the redaction: a summary that was decided after it, of the turn that is left.
func (r *summaryRace) check(counts []float64, what string) {
	if r.late && r.gone == 0 && len(counts) > 0 {
		assert.Equal(r, []float64{1}, counts, what)
		return
	}
	assert.Empty(r, counts, what)
}

// stands reports whether a process shows the summary.
func (r *summaryRace) stands(p *stack.Process) bool {
	counts, ok := r.read(p, 0)
	return ok && len(counts) > 0
}

// A model summarises each session once, though all processes that ask it are killed while it writes, and another one
// asks it again. The summary is shown no more after a redaction.
func TestAModelSummarisesEachSessionOnce(t *testing.T) {
	t.Parallel()
	const sessions = 6
	answers := make(chan struct{})
	model := modeltest.New(t, func([]string) modeltest.Answer {
		return modeltest.Answer{Text: "SECRET of the model", Hold: answers}
	})
	const four = "TURNLEDGER_PARTITIONS=4"
	nats, dir := stack.FreeAddress(t), stack.DataDir(t)
	first := stack.Start(t, append(stack.ServeNATS(nats), four), "serve", "--roles", "api,context,eraser",
		"--data-dir", dir)
	ask := func() *stack.Process {
		return stack.Start(t, append(stack.JoinNATS(nats), four, "TURNLEDGER_SUMMARY_URL="+model.URL+"/v1",
			"TURNLEDGER_SUMMARY_NAME=small"), "serve", "--roles", "api")
	}
	var others []*stack.Process
	for range 3 {
		others = append(others, ask())
	}
	var turn string
	for i := range 20 {
		for s := range sessions {
			id := others[(i+s)%len(others)].RecordTurn(t, fmt.Sprint("s-", s), fmt.Sprint("r", i), "question", "answer")
			if s == 0 && i == 0 {
				turn = id
			}
		}
	}
	partitions := map[int]bool{}
	for s := range sessions {
		partitions[events.Partition(fmt.Sprint("s-", s), 4)] = true
	}
	for range partitions {
		<-model.Asked // each waits for its first answer
	}
	for _, p := range others {
		p.Kill(t)
	}
	close(answers)
	last := ask()
	listed := func(session string) []any {
		return first.Get(t, stack.SessionPath(session)+"/summaries")["summaries"].([]any)
	}
	for s := range sessions {
		hang.Until(t, func() bool { return len(listed(fmt.Sprint("s-", s))) > 0 })
	}
	last.WaitCaughtUp(t, "summaries")
	require.Greater(t, len(partitions)+len(model.Asked), sessions, "some were asked for again")
	for s := range sessions {
		got := listed(fmt.Sprint("s-", s))
		require.Len(t, got, 1)
		require.InDelta(t, 10, got[0].(map[string]any)["turns"], 0)
	}
	body := map[string]any{"message": "next", "summary": true, "max_messages": 2}
	require.NotNil(t, first.BuildContext(t, "s-0", body)["summary"])
	first.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("s-0")+"/turns/"+turn+"/redact", nil)
	require.Empty(t, listed("s-0"))
	require.Nil(t, first.BuildContext(t, "s-0", body)["summary"])
}
