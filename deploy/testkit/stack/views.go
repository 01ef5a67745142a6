package stack

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
)

// WaitNoLag waits until no view lags, whichever process feeds it.
func (p *Process) WaitNoLag(t testing.TB) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		for _, x := range p.Get(t, "/v1/projections")["projections"].([]any) {
			assert.InDelta(c, 0, x.(map[string]any)["lag_events"], 0, "%v", x)
		}
	}, hang.Limit, 20*time.Millisecond)
}

// WaitCaughtUp waits until the process has fed all partitions of the named projections up to the log's head.
func (p *Process) WaitCaughtUp(t testing.TB, names ...string) {
	t.Helper()
	hang.Until(t, func() bool {
		status, out, err := p.Call(t.Context(), http.MethodGet, "/v1/projections", nil)
		if err != nil || status != http.StatusOK {
			return false
		}
		ready := map[string]bool{}
		for _, x := range out["projections"].([]any) {
			s := x.(map[string]any)
			follows := s["state"] == "live" || s["state"] == "outdated"
			name, is := s["name"].(string), s["position"] == s["head"] && follows
			earlier, listed := ready[name] // of another partition
			ready[name] = is && (earlier || !listed)
		}
		for _, n := range names {
			if !ready[n] {
				return false
			}
		}
		return true
	}, "%v do not catch up: %s", names, p.Log)
}

// AuditedQuestions returns the questions of an identity in the audit tables. It repeats the call while the answer is
// 503, as it is until PostgreSQL is back.
func (p *Process) AuditedQuestions(t testing.TB, identity string) (out []string) {
	t.Helper()
	var page map[string]any
	hang.Until(t, func() bool {
		status, answer, err := p.Call(t.Context(), http.MethodGet, "/v1/identities/"+identity+"/turns?limit=1000", nil)
		page = answer
		return err == nil && status == http.StatusOK
	})
	for _, x := range page["turns"].([]any) {
		out = append(out, x.(map[string]any)["question_neutral"].(string))
	}
	return out
}
