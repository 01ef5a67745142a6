package systemtest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// batch is what one call sends: whole turns of several sessions.
func batch(writer, n int) (body []byte, sessions []string) {
	var out bytes.Buffer
	for i := range 60 {
		session := fmt.Sprintf("w%d-%d", writer, i%6)
		sessions = append(sessions, session)
		_, _ = fmt.Fprintf(&out, `{"session_id":%q,"request_id":"%d-%d","question_neutral":"q","answer_neutral":%q}`+"\n",
			session, n, i, strings.Repeat("a", 300))
	}
	return out.Bytes(), sessions
}

// sendBatch sends a batch, and returns the ids of the turns that were acknowledged, by their sessions.
func sendBatch(url string, body []byte, sessions []string) (map[string][]string, error) {
	resp, err := http.Post(url+"/v1/turns", "application/x-ndjson", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	out := map[string][]string{}
	rows := json.NewDecoder(resp.Body)
	for _, session := range sessions {
		var row struct {
			Status int    `json:"http_status"`
			TurnID string `json:"turn_id"`
		}
		if err := rows.Decode(&row); err != nil {
			return out, err
		}
		if row.Status/100 == 2 {
			out[session] = append(out[session], row.TurnID)
		}
	}
	return out, nil
}

// The process is killed (-9) while four clients send batches. After the restart every line that was acknowledged is
// there, no turn is in two pieces, and sending all batches again records each turn once.
func TestKill9InTheMiddleOfBatches(t *testing.T) {
	t.Parallel()
	rounds := 4
	if stack.Long() {
		rounds = 40
	}
	seed := stack.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 3))
	dir := stack.DataDir(t)
	var mu sync.Mutex
	acknowledged := map[string][]string{}
	sent := [4]int{}
	var lines atomic.Int64 // acknowledged
	check := func(p *stack.Process) {
		for session, ids := range acknowledged {
			out := p.Get(t, stack.SessionPath(session)+"/turns?status=all&limit=10000")
			found := map[string]bool{}
			for _, x := range out["turns"].([]any) {
				turn := x.(map[string]any)
				require.Equal(t, "finalized", turn["status"], "seed %d: a whole turn is in two pieces", seed)
				require.False(t, found[turn["turn_id"].(string)], "seed %d: a turn stands twice", seed)
				found[turn["turn_id"].(string)] = true
			}
			for _, id := range ids {
				require.True(t, found[id], "seed %d: an acknowledged turn of %s is lost", seed, session)
			}
		}
	}
	for range rounds {
		p := stack.Start(t, nil, "dev", "--data-dir", dir)
		check(p)
		var writers sync.WaitGroup
		for w := range sent {
			writers.Go(func() {
				for {
					body, sessions := batch(w, sent[w])
					sent[w]++
					done, err := sendBatch(p.URL, body, sessions)
					mu.Lock()
					for session, ids := range done {
						acknowledged[session] = append(acknowledged[session], ids...)
						lines.Add(int64(len(ids)))
					}
					mu.Unlock()
					if err != nil {
						return // the server is gone
					}
				}
			})
		}
		moment := lines.Load() + rng.Int64N(600)
		hang.Until(t, func() bool { return lines.Load() > moment })
		p.Kill(t)
		writers.Wait()
	}
	p := stack.Start(t, nil, "dev", "--data-dir", dir)
	check(p)
	turns := map[string]int{}
	for range 2 {
		for w, n := range sent {
			for i := range n {
				body, sessions := batch(w, i)
				done, err := sendBatch(p.URL, body, sessions)
				require.NoError(t, err)
				for session, ids := range done {
					turns[session] += len(ids)
				}
			}
		}
	}
	total := 0
	for session, n := range turns {
		require.EqualValues(t, n/2, p.Get(t, stack.SessionPath(session))["turns"], "seed %d", seed)
		total += n / 2
	}
	t.Logf("seed %d: %d turns of %d batches", seed, total, sent[0]+sent[1]+sent[2]+sent[3])
	p.Stop(t)
}
