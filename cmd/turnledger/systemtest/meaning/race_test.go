package meaning_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/cmd/turnledger/systemtest/stack"
	"github.com/turnledger/turnledger/projections/audit/pgtest"
	"github.com/turnledger/turnledger/projections/index/embeddings/embeddingstest"
	"github.com/turnledger/turnledger/projections/index/weaviate/weaviatetest"
)

// While turns are redacted, no search of another process shows one whose redaction was acknowledged before the search
// was sent.
func TestNoSearchShowsWhatWasRedacted(t *testing.T) {
	t.Parallel()
	turns := 300
	if stack.Long() {
		turns = 10_000
	}
	w, e := weaviatetest.Start(t), embeddingstest.Start(t)
	nats := stack.FreeAddress(t)
	env := environment(w, e, "TURNLEDGER_POSTGRES_URL="+pgtest.URL(t))
	first := stack.Serve(t, append(stack.ServeNATS(nats), env...), "--roles", everyRole)
	second := stack.Serve(t, append(stack.JoinNATS(nats), env...), "--roles", "context,index")
	ids := make([]string, turns)
	for i := range ids {
		session := fmt.Sprint("s", i%20)
		if i < 20 {
			first.LinkIdentity(t, session, "ada")
		}
		question := fmt.Sprintf("where is the key %d of the garden", i)
		ids[i] = first.RecordTurn(t, session, fmt.Sprint(i), question, "there")
	}
	first.WaitNoLag(t) // the index may be fed by either process

	var redacted sync.Map // of turn ids
	var gone, searches, shown atomic.Int64
	var workers sync.WaitGroup
	workers.Go(func() {
		for i := range turns {
			path := stack.SessionPath(fmt.Sprint("s", i%20)) + "/turns/" + ids[i] + "/redact"
			status, _, err := first.Call(context.WithoutCancel(t.Context()), http.MethodPost, path, nil)
			if err == nil && status == http.StatusOK {
				redacted.Store(ids[i], true)
			}
			gone.Add(1)
		}
	})
	for k, p := range []*stack.Process{first, second, first, second, first, second} {
		workers.Go(func() {
			for n := k; gone.Load() < int64(turns); n++ {
				before := map[any]bool{}
				redacted.Range(func(id, _ any) bool { before[id] = true; return true })
				ask := body{"query": "the key of the garden", "limit": 100}
				path := "/v1/search"
				switch n % 3 {
				case 0:
					ask["mode"] = "meaning"
				case 1:
					ask["mode"] = "hybrid"
				default:
					path, ask = "/v1/similar", body{"question": "where is the key of the garden", "limit": 100}
				}
				status, page, err := p.Call(context.WithoutCancel(t.Context()), http.MethodPost, path, ask)
				if err != nil || status != http.StatusOK {
					continue
				}
				searches.Add(1)
				for _, h := range page["hits"].([]any) {
					shown.Add(1)
					if id := h.(body)["turn_id"]; before[id] {
						t.Errorf("%s shows %s, which was redacted before the call", path, id)
					}
				}
			}
		})
	}
	workers.Wait()
	t.Log(turns, "redactions,", searches.Load(), "searches,", shown.Load(), "hits")
	require.Positive(t, searches.Load())
	require.Positive(t, shown.Load())
}
