package systemtest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// receiptOf makes a call, and returns the receipt that the answer's header names.
func receiptOf(t *testing.T, p *stack.Process, method, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, p.URL+path, nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
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
		// Redis compresses some of them.
		require.Subset(t, holding[word], []string{"nats", "postgres"}, "%s is found", word)
	}
	require.Contains(t, holding[wordsOfTalk[0]], "redis")
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
		items, err := json.Marshal(itemsOf(t, p, conversation))
		require.NoError(t, err)
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
