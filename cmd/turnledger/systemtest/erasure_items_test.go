package systemtest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/memorytest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// receiptOf makes a call, and returns the receipt that the answer's header names.
func receiptOf(t *testing.T, p *stack.Process, method, path string) string {
	t.Helper()
	req := must.Get(http.NewRequestWithContext(t.Context(), method, p.URL+path, nil))(t)
	resp := must.Get(http.DefaultClient.Do(req))(t)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode, path)
	id := resp.Header.Get("Turnledger-Receipt")
	require.NotEmpty(t, id, path)
	return id
}

// deleteItem deletes the item at a place of a conversation, and returns the id of the receipt.
func deleteItem(t *testing.T, p *stack.Process, conversation string, at int) string {
	t.Helper()
	item := itemsOf(t, p, conversation)[at].(map[string]any)["id"].(string)
	return receiptOf(t, p, http.MethodDelete, "/v1/conversations/"+conversation+"/items/"+item)
}

// talk is the items of a run with a tool; each has a word of its own.
func talk() []any {
	return []any{
		map[string]any{"role": "user", "content": "QUOKKA, please"},
		map[string]any{"type": "reasoning", "summary": []any{
			map[string]any{"type": "summary_text", "text": "WOMBAT?"}}},
		map[string]any{"type": "function_call", "call_id": "c", "name": "f", "arguments": `{"x":"NUMBAT"}`},
		map[string]any{"type": "function_call_output", "call_id": "c", "output": "BILBY found"},
		map[string]any{"role": "assistant", "content": "POTOROO it is"},
		map[string]any{"role": "user", "content": "KEPT, and more"},
		map[string]any{"role": "assistant", "content": "KEPT as well"},
	}
}

var wordsOfTalk = []string{"QUOKKA", "WOMBAT", "NUMBAT", "BILBY", "POTOROO"}

// Each item that is deleted leaves every read at once, and every disk, and so do responses that an agent asked for with
// the whole history again, and conversations. Views that are built again, and a new process, show the same.
//
//conformance:o41
func TestNoByteOfADeletedItemIsLeft(t *testing.T) {
	t.Parallel()
	d, env := newStorage(t)
	env = append(append(env, "TURNLEDGER_PARTITIONS=4"), stack.NewModel(t).Env()...)
	serve := []string{"serve", "--data-dir", d.nats, "--roles", "api,context,recent,audit,eraser,chat"}
	p := stack.Start(t, env, serve...)
	post := func(path string, body any) map[string]any {
		t.Helper()
		return p.Must(t, http.StatusOK, http.MethodPost, path, body)
	}
	conversation := post("/v1/conversations", map[string]any{"items": talk()})["id"].(string)
	p.LinkIdentity(t, conversation, "alice")
	gone := post("/v1/conversations", map[string]any{"items": []any{
		map[string]any{"role": "user", "content": "DUNNART"}}})
	half := post("/v1/conversations", map[string]any{"items": []any{
		map[string]any{"role": "user", "content": "KEPT by half"},
		map[string]any{"role": "assistant", "content": "DIBBLER"},
		map[string]any{"role": "user", "content": "KEPT behind it"}}})["id"].(string)
	// As the Agents SDK does it with a session: the history again, and what is new.
	history := itemsOf(t, p, conversation)
	asks := append(slices.Clone(history), map[string]any{"role": "user", "content": "MULGARA, too"})
	again := post("/v1/responses", map[string]any{"input": asks})["id"].(string)
	next := post("/v1/responses", map[string]any{"input": "KOWARI", "previous_response_id": again})["id"].(string)
	p.WaitCaughtUp(t, "recent", "audit")
	d.flush(t)
	words := []string{"DUNNART", "MULGARA", "KOWARI", "DIBBLER"} // of nobody, whom the tables do not keep
	holding := d.storesHolding(append(words, wordsOfTalk...)...)
	for _, word := range wordsOfTalk {
		require.ElementsMatch(t, []string{"nats", "redis", "postgres"}, holding[word], "%s is found", word)
	}
	for _, word := range words {
		require.Contains(t, holding[word], "nats", "%s is found", word)
	}
	words = append(words, wordsOfTalk...)

	var receipts []string
	receipts = append(receipts, receiptOf(t, p, http.MethodDelete, "/v1/responses/"+next),
		receiptOf(t, p, http.MethodDelete, "/v1/responses/"+again),
		receiptOf(t, p, http.MethodDelete, "/v1/conversations/"+gone["id"].(string)), deleteItem(t, p, half, 1))
	for _, at := range []int{3, 0, 1, 1, 0} { // in another order than they came
		receipts = append(receipts, deleteItem(t, p, conversation, at))
		requireNoneRead(t, p, conversation, history)
	}
	for _, id := range []string{again, next} {
		p.Must(t, http.StatusNotFound, http.MethodGet, "/v1/responses/"+id, nil)
	}
	for _, n := range []int{0, 1, 2, 3, len(receipts) - 1} { // newer ones took the place of the others

		waitReceipt(t, p, receipts[n])
	}

	var before string
	nothing := func() {
		t.Helper()
		p.WaitCaughtUp(t, "recent", "audit")
		d.flush(t)
		holding := d.storesHolding(append(words, "KEPT")...)
		for _, word := range words {
			require.Empty(t, holding[word], word)
			require.NotContains(t, p.Log.String()+p.Out.String(), word)
		}
		require.ElementsMatch(t, []string{"nats", "redis", "postgres"}, holding["KEPT"])
		items := must.Get(json.Marshal(itemsOf(t, p, conversation)))(t)
		require.Len(t, itemsOf(t, p, half), 2, "of a turn that only its prune brings")
		now := string(items) + turnsJSON(t, p, conversation) + fmt.Sprint(itemsOf(t, p, half), p.Context(t, half))
		require.Contains(t, now, "KEPT")
		if before == "" {
			before = now
		}
		require.Equal(t, before, now)
		p.Done(t, "projections", "verify")
	}
	nothing()
	for _, name := range []string{"recent", "audit"} {
		p.Done(t, "projections", "rebuild", name, "--yes")
	}
	nothing()
	p.Stop(t)
	p = stack.Start(t, env, serve...)
	nothing()
}

// requireNoneRead requires that no read shows a word of the items that are not in the list any more, and that each of
// the others is read where it stood.
func requireNoneRead(t *testing.T, p *stack.Process, conversation string, history []any) {
	t.Helper()
	listed := fmt.Sprint(itemsOf(t, p, conversation))
	reads := map[string]string{
		"context": fmt.Sprint(p.Context(t, conversation)),
		"turns":   fmt.Sprint(p.Get(t, stack.SessionPath(conversation)+"/turns?status=all")),
		"history": fmt.Sprint(p.Get(t, stack.SessionPath(conversation)+"/history")),
	}
	for name, args := range map[string][]string{
		"folded": {"replay", "--turns"}, "events": {"replay"}, "export": {"export", "--identity", "alice"},
	} {
		said := p.Done(t, args...)
		reads[name] = said
	}
	for n, word := range wordsOfTalk {
		item := history[n].(map[string]any)["id"].(string)
		path := "/v1/conversations/" + conversation + "/items/" + item
		if strings.Contains(listed, word) {
			require.Contains(t, fmt.Sprint(p.Get(t, path)), word)
			continue
		}
		p.Must(t, http.StatusNotFound, http.MethodGet, path, nil)
		hits := p.Must(t, http.StatusOK, http.MethodPost, "/v1/search", map[string]any{"query": word})["hits"]
		require.Empty(t, hits, word)
		for name, said := range reads {
			require.NotContains(t, said, word, name)
		}
	}
}

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

// Only a process with the role audit feeds the memory. Without one a deletion is never confirmed: a warning says so.
func TestAMemoryThatNobodyFeedsIsReported(t *testing.T) {
	t.Parallel()
	service := memorytest.New(t)
	p := stack.Serve(t, []string{"TURNLEDGER_MEMORY_URL=" + service.URL, "TURNLEDGER_MEMORY_BUDGET=5s"},
		"--roles", "api,context,recent")
	p.WaitLog(t, "one with the role audit must run")
	secret := p.RecordTurn(t, "s", "r1", "I like teal.", "Noted.")
	p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("s")+"/turns/"+secret+"/redact", nil)
	out := p.BuildContext(t, "s", map[string]any{"message": "m", "memory": true})
	require.Contains(t, fmt.Sprint(out["warnings"]), "withheld")
	require.Contains(t, p.Metrics(t), "turnledger_memory_withheld_scopes 1")
}
