package systemtest_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// listedSessions pages through all sessions.
func listedSessions(t *testing.T, p *stack.Process, limit int) (all []map[string]any) {
	t.Helper()
	for cursor := ""; ; {
		page := p.Get(t, fmt.Sprintf("/v1/sessions?limit=%d&cursor=%s", limit, cursor))
		for _, s := range page["sessions"].([]any) {
			all = append(all, s.(map[string]any))
		}
		if page["next_cursor"] == nil {
			return all
		}
		cursor = page["next_cursor"].(string)
	}
}

func idsOf(sessions []map[string]any) (out []string) {
	for _, s := range sessions {
		out = append(out, s["session_id"].(string))
	}
	return out
}

// inTheLog returns the sessions of the log in the order in which a list must have them: a description is no activity.
func inTheLog(t *testing.T, p *stack.Process) []string {
	t.Helper()
	out := p.Done(t, "replay")
	active := map[string]time.Time{}
	for line := range strings.Lines(out) {
		var e struct {
			Type string
			Time time.Time `json:"recordedat"`
			Data struct {
				Session string `json:"session_id"`
			}
		}
		require.NoError(t, json.Unmarshal([]byte(line), &e), line)
		if _, known := active[e.Data.Session]; !known || !strings.Contains(e.Type, ".described.") {
			active[e.Data.Session] = e.Time
		}
	}
	return slices.SortedFunc(maps.Keys(active), func(a, b string) int {
		return cmp.Or(active[b].Compare(active[a]), cmp.Compare(a, b))
	})
}

// The list never lacks what was acknowledged: while nobody feeds the tables it is refused, and what writers in several
// processes were acknowledged is in it at once, in the order of activity in the log.
//
//conformance:h4
func TestTheListOfSessionsIsExact(t *testing.T) {
	t.Parallel()
	nats := stack.FreeAddress(t)
	env := []string{"TURNLEDGER_POSTGRES_URL=" + pg.URL(t), "TURNLEDGER_PARTITIONS=2"}
	reads := stack.Start(t, append(stack.ServeNATS(nats), env...), "serve", "--roles", "api,context",
		"--data-dir", stack.DataDir(t))
	joined := append(stack.JoinNATS(nats), env...)
	feeds := stack.Start(t, joined, "serve", "--roles", "audit")
	writers := []*stack.Process{reads}
	for range 2 {
		writers = append(writers, stack.Start(t, joined, "serve", "--roles", "api"))
	}
	const perWriter = 50
	var mu sync.Mutex
	var acknowledged []string
	var wg sync.WaitGroup
	for w, p := range writers {
		wg.Go(func() {
			for n := range perWriter {
				session := fmt.Sprintf("s-%d-%d", w, n)
				p.RecordTurn(t, session, "r", "question", "answer")
				mu.Lock()
				acknowledged = append(acknowledged, session)
				mu.Unlock()
			}
		})
	}
	for before := 0; before < len(writers)*perWriter && !t.Failed(); {
		mu.Lock()
		want := slices.Clone(acknowledged)
		mu.Unlock()
		before = len(want)
		have := map[string]bool{}
		for _, s := range listedSessions(t, reads, 200) {
			have[s["session_id"].(string)] = true
		}
		for _, session := range want {
			require.True(t, have[session], "%s was acknowledged before the first page", session)
		}
	}
	wg.Wait()
	p := writers[1]
	p.Must(t, http.StatusOK, http.MethodPatch, stack.SessionPath("only-described"), map[string]any{"title": "T"})
	p.Must(t, http.StatusCreated, http.MethodPost, stack.SessionPath("s-0-0")+"/turns",
		map[string]any{"request_id": "again", "question_neutral": "the last question"})
	all := listedSessions(t, reads, 30)
	require.Len(t, all, len(writers)*perWriter+1)
	require.Equal(t, "s-0-0", all[0]["session_id"], "it was active last")
	require.Equal(t, "the last question", all[0]["last_turn"].(map[string]any)["question_neutral"])
	require.Equal(t, "pending", all[0]["last_turn"].(map[string]any)["status"])
	require.Equal(t, inTheLog(t, reads), idsOf(all), "newest activity first, each session once")

	feeds.Kill(t)
	p.LinkIdentity(t, "s-1-1", "ada")
	status, refused, err := reads.Call(t.Context(), http.MethodGet, "/v1/sessions", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, status, refused)
	require.Equal(t, "audit_unavailable", refused["code"])
	stack.Start(t, joined, "serve", "--roles", "audit")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		status, page, err := reads.Call(t.Context(), http.MethodGet, "/v1/sessions?identity_id=ada", nil)
		if err != nil || status != http.StatusOK || len(page["sessions"].([]any)) != 1 {
			assert.Failf(c, "not yet", "%d %v %v", status, page, err)
		}
	}, hang.Limit, 100*time.Millisecond)
}
