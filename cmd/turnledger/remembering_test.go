package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/services/memory/memorytest"
)

// remembered is what the memory outside gives a prompt of an identity.
func (p *process) remembered(t testing.TB, identity, message string) string {
	t.Helper()
	out := p.must(t, http.StatusOK, http.MethodPost, session("somewhere of "+identity)+"/context",
		map[string]any{"message": message, "memory": true, "identity_id": identity})
	snippet, _ := out["memory_snippet"].(string)
	require.Equal(t, snippet != "", strings.Contains(fmt.Sprint(out["messages"]), "Long-term memory:"))
	return snippet
}

// placeOf gives what a receipt says of a place.
func placeOf(t testing.TB, receipt map[string]any, name string) map[string]any {
	t.Helper()
	for _, x := range receipt["places"].([]any) {
		if place := x.(map[string]any); place["place"] == name {
			return place
		}
	}
	t.Fatalf("the receipt has no place %s: %v", name, receipt)
	return nil
}

// What is redacted or erased leaves the memory of another service: document by document,
// with nothing given of that identity until the service has confirmed, with the log
// waiting for it, by a receipt that names it, and also when the process is killed
// meanwhile.
func TestWhatIsErasedLeavesTheMemoryOutside(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v5", "v4"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			service, dir := memorytest.New(t), dataDir(t)
			env := []string{"TURNLEDGER_MEMORY_URL=" + service.URL, "TURNLEDGER_MEMORY_API=" + version, "TURNLEDGER_MEMORY_BUDGET=5s"}
			run := func() *process { return start(t, env, "serve", "--data-dir", dir) }
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
				p.must(t, http.StatusOK, http.MethodPut, session(id)+"/identity", map[string]any{"identity_id": identity})
			}
			teal := p.turn(t, "s", "r1", "I like teal.", "Teal it is.")
			p.turn(t, "s", "r2", "I like tea.", "Tea it is.")
			p.turn(t, "t", "r1", "I like red.", "Red it is.")
			p.turn(t, "u", "r1", "I like rum.", "Rum it is.")
			contents := func() string {
				var out []string
				for _, d := range service.Documents() {
					out = append(out, d.Content)
				}
				return strings.Join(out, "\n")
			}
			require.Eventually(t, func() bool { return len(service.Documents()) == 4 }, 30*time.Second, 20*time.Millisecond)
			require.Contains(t, p.remembered(t, "alice", "what do I like"), "teal")
			disks := &disks{nats: dir}
			// withheld is what must be true while the service confirms nothing.
			withheld := func(receipt, text string) {
				t.Helper()
				require.Empty(t, p.remembered(t, "alice", "what do I like"))
				require.Contains(t, p.remembered(t, "bob", "what do I like"), "rum")
				r := p.must(t, http.StatusOK, http.MethodGet, "/v1/receipts/"+url.PathEscape(receipt), nil)
				require.Equal(t, "running", r["state"])
				require.Equal(t, "waiting", placeOf(t, r, "log")["state"])
				require.Contains(t, disks.holding(t, text), "nats", "the log waits")
				require.Contains(t, contents(), text)
			}
			confirmed := func(receipt, text string) map[string]any {
				t.Helper()
				withheld(receipt, text)
				p.kill(t)
				p = run()
				withheld(receipt, text)
				service.Fail(nil)
				r := p.receipt(t, url.PathEscape(receipt))
				// What was done in a place is seen a moment before it is written down.
				require.Eventually(t, func() bool {
					r = p.receipt(t, url.PathEscape(receipt))
					return placeOf(t, r, "memory")["erased_at"] != nil || r["kind"] == "turn"
				}, 30*time.Second, 20*time.Millisecond)
				require.Equal(t, "done", placeOf(t, r, "memory")["state"])
				require.NotContains(t, contents(), text)
				require.Empty(t, disks.holding(t, text))
				return r
			}

			refuse()
			redacted := p.must(t, http.StatusOK, http.MethodPost, session("s")+"/turns/"+teal+"/redact", nil)
			confirmed(redacted["position"].(string), "Teal it is")
			require.Len(t, service.Documents(), 3, "the one document went, and no other")
			require.Contains(t, p.remembered(t, "alice", "what do I like"), "tea")

			refuse()
			erased := p.must(t, http.StatusAccepted, http.MethodDelete, session("t"), nil)
			r := confirmed(erased["receipt_id"].(string), "Red it is")
			require.EqualValues(t, 1, placeOf(t, r, "memory")["erased"])
			require.NotEmpty(t, placeOf(t, r, "memory")["erased_at"])
			require.Len(t, service.Documents(), 2)

			refuse()
			erased = p.must(t, http.StatusAccepted, http.MethodDelete, "/v1/identities/alice", nil)
			r = confirmed(erased["receipt_id"].(string), "Tea it is")
			require.NotEmpty(t, placeOf(t, r, "memory")["erased_at"])
			require.Len(t, service.Documents(), 1)
			require.Contains(t, p.remembered(t, "bob", "what do I like"), "rum")
		})
	}
}

// TestTheSystemIsNotRemindedEither: what a guest said in a thread does not reach the
// system's message by way of the memory.
func TestTheSystemIsNotRemindedEither(t *testing.T) {
	t.Parallel()
	service, model := memorytest.New(t), newScripted(t)
	p := start(t, append(model.env(), "TURNLEDGER_MEMORY_URL="+service.URL, "TURNLEDGER_MEMORY_BUDGET=5s"), "serve", "--data-dir", dataDir(t), "--roles", "api,context,recent,audit,chat")
	p.turn(t, "s", "r1", "I like teal.", "Teal it is.")
	require.Eventually(t, func() bool { return len(service.Documents()) == 1 }, 30*time.Second, 20*time.Millisecond)
	p.ask(t, "s", map[string]any{"content": "what do I like", "user_id": "system", "memory": true})
	require.Equal(t, []string{"user: what do I like"}, <-model.Asked)
}
