package systemtest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/modeltest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// sse is an event of a stream of a response.
type sse struct {
	number int
	raw    string
}

// eventsOf reads the whole events of a stream, until it ends or each returns false.
func eventsOf(from io.Reader, each func(sse) bool) {
	raw := ""
	for in := bufio.NewReader(from); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return // what is cut off is no event
		}
		if strings.HasPrefix(line, ":") {
			_, _ = in.ReadString('\n') // a heartbeat
			continue
		}
		if raw += line; line != "\n" {
			continue
		}
		var e struct {
			Number int `json:"sequence_number"`
		}
		_, data, _ := strings.Cut(raw, "data: ")
		_ = json.Unmarshal([]byte(data), &e)
		if !each(sse{e.Number, raw}) {
			return
		}
		raw = ""
	}
}

// ended reports whether an event is the last of its stream.
func (e sse) ended() bool {
	name, _, _ := strings.Cut(e.raw, "\n")
	return slices.Contains([]string{
		"event: response.completed", "event: response.failed", "event: response.incomplete",
	}, name)
}

// watching follows a response of a process from behind a number, and leaves and comes back at random.
func watching(
	ctx context.Context, t *testing.T, p *stack.Process, id string, rng *rand.Rand,
) (got []sse, ended time.Time, failed error) {
	after := rng.IntN(6) - 1
	for {
		path := "/v1/responses/" + id + "?stream=true"
		if after >= 0 {
			path += "&starting_after=" + strconv.Itoa(after)
		}
		r := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, p.URL+path, nil))(t)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return got, time.Time{}, err
		}
		if resp.StatusCode != http.StatusOK {
			return got, time.Time{}, fmt.Errorf("status %d", resp.StatusCode)
		}
		stays := 1 + rng.IntN(8)
		eventsOf(resp.Body, func(e sse) bool {
			got, after = append(got, e), e.number
			if e.ended() {
				ended = time.Now()
			}
			stays--
			return stays > 0 && ended.IsZero()
		})
		_ = resp.Body.Close()
		if !ended.IsZero() {
			return got, ended, nil
		}
	}
}

// The process that makes an answer is killed, or asked to stop, at a random moment, or left alone, while watchers of
// another one leave and come back: what they have is what the first caller had, also after the end, and none hangs.
// The same request again is answered.
func TestWatchersHaveWhatTheCallerHad(t *testing.T) {
	t.Parallel()
	rounds := 4
	if stack.Long() {
		rounds = 200
	}
	rng := rand.New(rand.NewPCG(stack.Seed(t), 0))
	model := stack.NewModel(t)
	words := strings.TrimSpace(strings.Repeat("word ", 20))
	model.Script(func([]string) modeltest.Answer { return modeltest.Answer{Text: words, Every: 40 * time.Millisecond} })
	address := stack.FreeAddress(t)
	env := append(model.Env(), "TURNLEDGER_STREAM_KEY="+strings.Repeat("k", 32))
	stack.Start(t, append(stack.ServeNATS(address), env...), "serve", "--data-dir", stack.DataDir(t), "--roles", "api")
	join := func() *stack.Process {
		return stack.Start(t, append(stack.JoinNATS(address), env...), "serve", "--roles", "api,context,chat")
	}
	a, b := join(), join()
	for round := range rounds {
		what := []string{"killed", "stopped", "left"}[(round+rng.IntN(2))%3]
		at := time.Duration(50+rng.IntN(900)) * time.Millisecond
		name := fmt.Sprintf("round %d: %s after %s", round, what, at)
		ask := func(p *stack.Process) *http.Response {
			body := strings.NewReader(fmt.Sprintf(`{"input":"question %d","stream":true}`, round))
			r := must.Get(http.NewRequestWithContext(t.Context(), "POST", p.URL+"/v1/responses", body))(t)
			r.Header.Set("Idempotency-Key", fmt.Sprint("round ", round))
			return must.Get(http.DefaultClient.Do(r))(t)
		}
		first := ask(a)
		began := readTo(t, first, "\n\n")
		_, id, _ := strings.Cut(began, `"id":"resp_`)
		id, _, _ = strings.Cut(id, `"`)
		id = "resp_" + id
		var caller []sse
		var seen [3][]sse
		var ends [3]time.Time
		var fails [3]error
		var all sync.WaitGroup
		all.Go(func() {
			eventsOf(first.Body, func(e sse) bool { caller = append(caller, e); return true })
		})
		for n := range seen {
			own := rand.New(rand.NewPCG(rng.Uint64(), 0))
			all.Go(func() { seen[n], ends[n], fails[n] = watching(t.Context(), t, b, id, own) })
		}
		<-time.After(at)
		ended := time.Now()
		switch what {
		case "killed":
			a.Kill(t)
		case "stopped":
			a.Stop(t)
		case "left":
		}
		all.Wait()
		_ = first.Body.Close()
		caller = slices.Insert(caller, 0, sse{0, began})
		told := map[int]string{}
		for _, e := range caller {
			told[e.number] = e.raw
		}
		whole := caller[len(caller)-1].ended()
		for n, got := range seen {
			require.NoError(t, fails[n], name)
			lost := false // what follows is how a response ends that is lost
			for i, e := range got {
				if i > 0 {
					require.Greater(t, e.number, got[i-1].number, name)
				}
				if lost = lost || told[e.number] != e.raw; lost {
					require.False(t, whole, "%s: the caller did not have %s", name, e.raw)
					require.NotContains(t, e.raw, "delta", name)
				}
			}
			if what == "killed" {
				require.Less(t, ends[n].Sub(ended), 5*time.Second, name)
			} else {
				require.True(t, whole, name)
				require.Equal(t, caller[len(caller)-1], got[len(got)-1], name)
			}
		}
		if what != "left" {
			a = join()
		}
		if whole {
			for _, p := range []*stack.Process{a, b} {
				var again []sse
				resp := open(t.Context(), t, p, "GET", "/v1/responses/"+id+"?stream=true", "")
				eventsOf(resp.Body, func(e sse) bool { again = append(again, e); return true })
				require.Equal(t, caller, again, name)
			}
		} else {
			require.Equal(t, "failed", b.Get(t, "/v1/responses/"+id)["status"], name)
		}
		var retried []sse
		resp := ask(b)
		eventsOf(resp.Body, func(e sse) bool { retried = append(retried, e); return true })
		_ = resp.Body.Close()
		require.True(t, retried[len(retried)-1].ended(), name)
		require.NotContains(t, retried[len(retried)-1].raw, `"status":"failed"`, name)
	}
	turns := 0
	for range model.Asked {
		if turns++; len(model.Asked) == 0 {
			break
		}
	}
	require.LessOrEqual(t, turns, 2*rounds, "a question is asked anew only after a kill")
}
