package systemtest_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/memorytest"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// memorySnippet returns what the memory outside adds to a prompt of an identity.
func memorySnippet(t testing.TB, p *stack.Process, identity, message string) string {
	t.Helper()
	out := p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("somewhere of "+identity)+"/context",
		map[string]any{"message": message, "memory": true, "identity_id": identity})
	snippet, _ := out["memory_snippet"].(string)
	require.Equal(t, snippet != "", strings.Contains(fmt.Sprint(out["messages"]), "Long-term memory:"))
	return snippet
}

// Redacted and erased texts are deleted from a memory outside, document by document. Until that service has confirmed,
// no prompt gets anything of the identity, the log keeps its events, and the receipt stays open. A kill -9 in between
// changes none of that.
func TestWhatIsErasedLeavesTheMemoryOutside(t *testing.T) {
	t.Parallel()
	service, dir := memorytest.New(t), stack.DataDir(t)
	env := []string{"TURNLEDGER_MEMORY_URL=" + service.URL, "TURNLEDGER_MEMORY_BUDGET=5s"}
	run := func() *stack.Process { return stack.Start(t, env, "serve", "--data-dir", dir) }
	refuse := func() {
		service.Fail(func(r *http.Request, _ string) int {
			if r.Method == http.MethodDelete {
				return http.StatusServiceUnavailable
			}
			return 0
		})
	}
	p := run()
	for id, identity := range map[string]string{"s": "alice", "t": "alice", "u": "bob"} {
		p.LinkIdentity(t, id, identity)
	}
	teal := p.RecordTurn(t, "s", "r1", "I like teal.", "Teal it is.")
	p.RecordTurn(t, "s", "r2", "I like tea.", "Tea it is.")
	p.RecordTurn(t, "t", "r1", "I like red.", "Red it is.")
	p.RecordTurn(t, "u", "r1", "I like rum.", "Rum it is.")
	contents := func() string {
		var out []string
		for _, d := range service.Documents() {
			out = append(out, d.Content)
		}
		return strings.Join(out, "\n")
	}
	hang.Until(t, func() bool { return len(service.Documents()) == 4 })
	require.Contains(t, memorySnippet(t, p, "alice", "what do I like"), "teal")
	p.Must(t, http.StatusNotFound, http.MethodPost, "/v1/projections/memory/rebuild", nil)
	disks := &storage{nats: dir}
	// withheld checks what must be true while the service confirms nothing.
	withheld := func(receipt, text string) {
		t.Helper()
		require.Empty(t, memorySnippet(t, p, "alice", "what do I like"))
		require.Contains(t, memorySnippet(t, p, "bob", "what do I like"), "rum")
		r := p.Get(t, "/v1/receipts/"+url.PathEscape(receipt))
		require.Equal(t, "running", r["state"])
		require.Equal(t, "waiting", receiptPlace(t, r, "log")["state"])
		require.Contains(t, disks.storesHolding(text)[text], "nats", "the log waits")
		require.Contains(t, contents(), text)
	}
	confirmed := func(receipt, text string) map[string]any {
		t.Helper()
		withheld(receipt, text)
		p.Kill(t)
		p = run()
		withheld(receipt, text)
		service.Fail(nil)
		r := waitReceipt(t, p, url.PathEscape(receipt))
		// A place is done a moment before its time is written down.
		hang.Until(t, func() bool {
			r = waitReceipt(t, p, url.PathEscape(receipt))
			return receiptPlace(t, r, "memory")["erased_at"] != nil || r["kind"] == "turn"
		})
		require.Equal(t, "done", receiptPlace(t, r, "memory")["state"])
		require.NotContains(t, contents(), text)
		require.Empty(t, disks.storesHolding(text))
		return r
	}

	refuse()
	redacted := p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("s")+"/turns/"+teal+"/redact", nil)
	confirmed(redacted["position"].(string), "Teal it is")
	require.Len(t, service.Documents(), 3, "the one document went, and no other")
	require.Contains(t, memorySnippet(t, p, "alice", "what do I like"), "tea")

	refuse()
	erased := p.Must(t, http.StatusAccepted, http.MethodDelete, stack.SessionPath("t"), nil)
	r := confirmed(erased["receipt_id"].(string), "Red it is")
	require.EqualValues(t, 1, receiptPlace(t, r, "memory")["erased"])
	require.NotEmpty(t, receiptPlace(t, r, "memory")["erased_at"])
	require.Len(t, service.Documents(), 2)

	refuse()
	erased = p.Must(t, http.StatusAccepted, http.MethodDelete, "/v1/identities/alice", nil)
	r = confirmed(erased["receipt_id"].(string), "Tea it is")
	require.NotEmpty(t, receiptPlace(t, r, "memory")["erased_at"])
	require.Len(t, service.Documents(), 1)
	require.Contains(t, memorySnippet(t, p, "bob", "what do I like"), "rum")
}

// A message of the user "system" reads no history, and so no memory of what a guest said in the thread.
func TestMessagesOfTheSystemGetNoMemory(t *testing.T) {
	t.Parallel()
	service, model := memorytest.New(t), stack.NewModel(t)
	p := stack.Serve(t, append(model.Env(), "TURNLEDGER_MEMORY_URL="+service.URL, "TURNLEDGER_MEMORY_BUDGET=5s"),
		"--roles", "api,context,recent,audit,chat")
	p.RecordTurn(t, "s", "r1", "I like teal.", "Teal it is.")
	hang.Until(t, func() bool { return len(service.Documents()) == 1 })
	p.Ask(t, "s", map[string]any{"content": "what do I like", "user_id": "system", "memory": true})
	require.Equal(t, []string{"user: what do I like"}, <-model.Asked)
}
