package systemtest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// What was redacted before a call is in no hit, no snippet, no list and no count of it, whichever of two processes
// redacts and whichever is asked, while both are kept busy.
func TestNoSearchShowsARedactedText(t *testing.T) {
	t.Parallel()
	rounds, seed := 10, uint64(1)
	if os.Getenv("TURNLEDGER_TORTURE") != "" {
		rounds, seed = 1000, rand.Uint64()
	}
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	nats, postgres := stack.FreeAddress(t), "TURNLEDGER_POSTGRES_URL="+pg.URL(t)
	one := stack.Start(t, append(stack.ServeNATS(nats), postgres), "serve", "--roles", "api,context,recent,audit",
		"--data-dir", stack.DataDir(t))
	other := stack.Start(t, append(stack.JoinNATS(nats), postgres), "serve", "--roles", "api,context")
	both := []*stack.Process{one, other}
	for n := range rounds {
		session, identity := fmt.Sprint("s-", n), fmt.Sprint("i-", n)
		writes, linked := both[rng.IntN(2)], rng.IntN(4) > 0
		if linked {
			writes.LinkIdentity(t, session, identity)
		}
		turns := []string{writes.RecordTurn(t, session, "r1", "first words", "SECRET words"),
			writes.RecordTurn(t, session, "r2", "SECRET words, too", "words")}
		gone := rng.IntN(2)
		if linked {
			require.Len(t, shown(t, both[rng.IntN(2)], session), 2, "both are found at first")
		}
		var redacted atomic.Bool
		var wg sync.WaitGroup
		until := func(look func() any, why string) {
			for after := false; !after && !t.Failed(); {
				after = redacted.Load()
				if got := look(); after {
					assert.NotContains(t, got, turns[gone], why)
				}
			}
		}
		for _, p := range both {
			wg.Go(func() { until(func() any { return shown(t, p, session) }, "a hit") })
			wg.Go(func() { until(func() any { return lastTurn(t, p, session, identity) }, "a list") })
		}
		got := both[rng.IntN(2)].Must(t, http.StatusOK, http.MethodPost,
			stack.SessionPath(session)+"/turns/"+turns[gone]+"/redact", nil)
		redacted.Store(true)
		wg.Wait()
		if !linked {
			require.Empty(t, shown(t, one, session), "an anonymous session is not searched")
		}
		for _, p := range both {
			all := p.Get(t, "/v1/stats?min_position="+got["position"].(string))
			require.Equal(t, []int{n + 1, n + 1}, []int{sumOf(all, "redacted"), sumOf(all, "finalized")})
		}
		if t.Failed() {
			return
		}
	}
}

// shown returns the turns that a search for a word of all turns finds, each with its text.
func shown(t *testing.T, p *stack.Process, session string) map[string]any {
	t.Helper()
	status, page, err := p.Call(context.Background(), http.MethodPost, "/v1/search",
		map[string]any{"query": "secret words", "session_id": session, "limit": 100})
	if !assert.NoError(t, err) || !assert.Equal(t, http.StatusOK, status, page) {
		return nil
	}
	out := map[string]any{}
	for _, h := range page["hits"].([]any) {
		out[h.(map[string]any)["turn_id"].(string)] = h.(map[string]any)["snippet"]
	}
	return out
}

// lastTurn returns the last turn that a list shows of a session, which may be linked to an identity.
func lastTurn(t *testing.T, p *stack.Process, session, identity string) string {
	t.Helper()
	for _, of := range []string{"&identity_id=" + identity, ""} {
		status, page, err := p.Call(context.Background(), http.MethodGet, "/v1/sessions?limit=5"+of, nil)
		if !assert.NoError(t, err) || !assert.Equal(t, http.StatusOK, status, page) {
			return ""
		}
		for _, s := range page["sessions"].([]any) {
			if s := s.(map[string]any); s["session_id"] == session && s["last_turn"] != nil {
				return s["last_turn"].(map[string]any)["turn_id"].(string)
			}
		}
	}
	return ""
}

// sumOf adds up a member of all buckets.
func sumOf(stats map[string]any, member string) (n int) {
	for _, bucket := range stats["buckets"].([]any) {
		n += int(bucket.(map[string]any)[member].(float64))
	}
	return n
}
