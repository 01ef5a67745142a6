package weaviate_test

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/embeddingstest"
	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	weaviatetest "github.com/turnledger/turnledger/deploy/testkit/weaviate"
)

// turnsOfSession is also the most that one page shows, so that a page of a session has all of its turns.
const turnsOfSession = 100

// race is turns that are redacted while they are searched.
type race struct {
	t         *testing.T
	processes []*stack.Process
	// ids are the turns' ids, and numbers the turns by their ids.
	ids     []string
	numbers map[string]int
	// gone turns were redacted: their redaction was acknowledged. last is the newest of them.
	gone []atomic.Bool
	last atomic.Int64

	redactions, searches, shown, refused atomic.Int64
}

func raceSession(n int) string { return fmt.Sprint("s", n/turnsOfSession) }

// While two processes redact turns, no search of either shows one whose redaction was acknowledged before the search
// was sent: not its id, its texts, nor that there is one turn more. Half of the searches ask for the very text of the
// turn that was redacted last. There are as many searches as redactions, or more.
func TestNoSearchShowsWhatWasRedacted(t *testing.T) {
	t.Parallel()
	turns := 300
	if stack.Long() {
		turns = 10_000
	}
	w, e := weaviatetest.Start(t), embeddingstest.Start(t)
	nats := stack.FreeAddress(t)
	env := environment(w, e, "TURNLEDGER_POSTGRES_URL="+pg.URL(t))
	r := &race{t: t, ids: make([]string, turns), numbers: map[string]int{}, gone: make([]atomic.Bool, turns)}
	r.processes = append(r.processes, stack.Serve(t, append(stack.ServeNATS(nats), env...), "--roles", everyRole),
		stack.Serve(t, append(stack.JoinNATS(nats), env...), "--roles", "api,context,index"))
	for i := range r.ids {
		if i%turnsOfSession == 0 {
			r.processes[0].LinkIdentity(t, raceSession(i), "ada")
		}
		r.ids[i] = r.processes[0].RecordTurn(t, raceSession(i), fmt.Sprint(i), question(i),
			fmt.Sprintf("under stone %d", i))
		r.numbers[r.ids[i]] = i
	}
	hang.Until(t, func() bool { return !behind(t, r.processes[0]) })

	var workers sync.WaitGroup
	var next atomic.Int64
	for _, p := range r.processes {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(turns) && !t.Failed(); i = next.Add(1) - 1 {
				r.redact(p, int(i))
			}
		})
	}
	for k := range 6 {
		workers.Go(func() {
			for n := k; r.goesOn() && !t.Failed(); n++ {
				r.search(r.processes[k%2], n)
			}
		})
	}
	workers.Wait()
	t.Log(r.redactions.Load(), "redactions,", r.searches.Load(), "searches,", r.shown.Load(), "hits,",
		r.refused.Load(), "searches answered with an error")
	require.EqualValues(t, turns, r.redactions.Load())
	require.GreaterOrEqual(t, r.searches.Load(), int64(turns))
	require.Greater(t, r.shown.Load(), int64(turns))
}

func question(i int) string { return fmt.Sprintf("where is key %d of the garden", i) }

func (r *race) goesOn() bool {
	return r.redactions.Load() < int64(len(r.ids)) || r.searches.Load() < int64(len(r.ids))
}

// redact redacts a turn, and tries again after an error. It waits for the searches to keep up.
func (r *race) redact(p *stack.Process, i int) {
	path := stack.SessionPath(raceSession(i)) + "/turns/" + r.ids[i] + "/redact"
	for r.redactions.Load() > r.searches.Load()+10 && !r.t.Failed() {
		<-time.After(time.Millisecond)
	}
	for !r.t.Failed() {
		status, _, err := p.Call(context.WithoutCancel(r.t.Context()), http.MethodPost, path, nil)
		if err == nil && status == http.StatusOK {
			break
		}
	}
	r.gone[i].Store(true)
	r.last.Store(int64(i))
	r.redactions.Add(1)
}

// search makes one search of several kinds, and checks all that it shows.
func (r *race) search(p *stack.Process, n int) {
	about := int(r.last.Load())
	if n%2 == 0 {
		about = (about + n) % len(r.ids)
	}
	before := make([]bool, len(r.ids))
	left := 0
	for i := range r.gone {
		before[i] = r.gone[i].Load()
		if !before[i] && raceSession(i) == raceSession(about) {
			left++
		}
	}
	path, ask := "/v1/search", body{"query": question(about), "limit": turnsOfSession}
	kind := []string{"meaning", "hybrid", "words", "session", "similar"}[n/2%5]
	switch kind {
	case "session":
		ask["mode"], ask["session_id"] = "meaning", raceSession(about)
	case "similar":
		path, ask = "/v1/similar", body{"question": question(about), "limit": turnsOfSession}
	default:
		ask["mode"] = kind
	}
	status, page, err := p.Call(context.WithoutCancel(r.t.Context()), http.MethodPost, path, ask)
	if err != nil || status != http.StatusOK {
		r.refused.Add(1)
		return
	}
	hits := page["hits"].([]any)
	if kind == "session" && len(hits) > left {
		r.t.Errorf("%d turns of %s are counted, and %d were left", len(hits), raceSession(about), left)
	}
	for _, h := range hits {
		for _, i := range r.named(h.(body)) {
			if before[i] {
				r.t.Errorf("a search by %s shows turn %d, which was redacted before the call", kind, i)
			}
		}
	}
	r.shown.Add(int64(len(hits)))
	r.searches.Add(1)
}

var numberOfMeaning = regexp.MustCompile(`(?:key|stone) (\d+)`)

// named returns the turns that a hit names, by its id or in its texts.
func (r *race) named(hit body) (out []int) {
	out = append(out, r.numbers[hit["turn_id"].(string)])
	for _, text := range []string{"snippet", "question_neutral", "answer_neutral"} {
		said, _ := hit[text].(string)
		for _, m := range numberOfMeaning.FindAllStringSubmatch(said, -1) {
			i, err := strconv.Atoi(m[1])
			require.NoError(r.t, err)
			out = append(out, i)
		}
	}
	return out
}
