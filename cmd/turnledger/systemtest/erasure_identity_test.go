package systemtest_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// After the 202 no process shows anything of the identity, and writes to its sessions are 410. No eraser runs here, so
// nothing has closed the sessions yet.
func TestAnErasedIdentityIsForgottenAtOnce(t *testing.T) {
	t.Parallel()
	nats := stack.FreeAddress(t)
	env := []string{"TURNLEDGER_PARTITIONS=4", "TURNLEDGER_POSTGRES_URL=" + pg.URL(t)}
	a := stack.Serve(t, append(stack.ServeNATS(nats), env...), "--roles", "api,context,recent,audit")
	b := stack.Start(t, append(stack.JoinNATS(nats), env...), "serve", "--roles", "api,context,recent")
	ids := []string{"a", "b", "c", "d", "e"}
	link := func(id, identity string) {
		a.LinkIdentity(t, id, identity)
	}
	for _, id := range ids {
		a.RecordTurn(t, id, "r1", "SECRET cats", "SECRET answer")
		link(id, "alice")
	}
	turn := a.RecordTurn(t, "other", "r1", "KEPT cats", "KEPT answer")
	link("other", "bob")
	shown := func(p *stack.Process, id string) string {
		t.Helper()
		out := fmt.Sprint(p.Get(t, stack.SessionPath(id)+"/history"), turnsJSON(t, p, id), p.Context(t, id))
		asOf := map[string]any{"message": "m", "as_of": map[string]any{"position": fmt.Sprintf("%d:1000", 0)}}
		if code, got, err := p.Call(t.Context(), http.MethodPost, stack.SessionPath(id)+"/context", asOf); err == nil &&
			code == http.StatusOK {
			out += fmt.Sprint(got)
		}
		return out + fmt.Sprint(p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("new")+"/context",
			map[string]any{"message": "cats", "memory": true, "identity_id": "alice"}))
	}
	require.Contains(t, shown(b, "a"), "SECRET", "the test sees what there is")
	require.Contains(t, fmt.Sprint(b.Get(t, "/v1/identities/alice/turns")), "SECRET")

	receipt := a.Must(t, http.StatusAccepted, http.MethodDelete, "/v1/identities/alice", nil)["receipt_id"].(string)
	for _, p := range []*stack.Process{b, a} {
		for _, id := range ids {
			require.NotContains(t, shown(p, id), "SECRET")
		}
		require.NotContains(t, fmt.Sprint(p.Get(t, "/v1/identities/alice/turns")), "SECRET")
		code, out, errs := p.Run(t, "replay")
		require.Equal(t, stack.ExitDone, code, errs)
		require.NotContains(t, out, "SECRET")
		require.Contains(t, out, "KEPT")
	}
	for i, id := range ids {
		p := []*stack.Process{a, b}[i%2]
		refused := p.Must(t, http.StatusGone, http.MethodPost, stack.SessionPath(id)+"/turns",
			map[string]any{"request_id": "r9", "question_neutral": "SECRET late"})
		require.Equal(t, "session_erased", refused["code"])
	}
	require.Equal(t, receipt, b.Must(t, http.StatusAccepted, http.MethodDelete, stack.SessionPath("a"),
		nil)["receipt_id"])
	require.Equal(t, receipt, b.Must(t, http.StatusAccepted, http.MethodDelete, "/v1/identities/alice",
		nil)["receipt_id"])

	// The identity can begin no session, and a session that is linked to it later is erased like the others.
	b.Must(t, http.StatusGone, http.MethodPost, stack.SessionPath("anew")+"/turns",
		map[string]any{"request_id": "r1", "question_neutral": "SECRET anew", "identity_id": "alice"})
	require.Equal(t, false, b.Get(t, stack.SessionPath("anew"))["found"])
	b.RecordTurn(t, "late", "r1", "SECRET cats", "SECRET answer")
	link("late", "alice")
	require.NotContains(t, shown(b, "late"), "SECRET")
	b.Must(t, http.StatusGone, http.MethodPost, stack.SessionPath("late")+"/turns",
		map[string]any{"request_id": "r2", "question_neutral": "q"})
	require.Contains(t, turnsJSON(t, b, "other"), turn)
	require.Len(t, b.Context(t, "other"), 2)

	// An eraser in another process does not know what these two keep in memory.
	stack.Start(t, append(append(stack.JoinNATS(nats), "TURNLEDGER_ERASE_RATE=1000"), env...), "serve",
		"--roles", "eraser")
	for _, p := range []*stack.Process{a, b} {
		require.Equal(t, "done", receiptPlace(t, waitReceipt(t, p, receipt), "recent")["state"])
	}
}
