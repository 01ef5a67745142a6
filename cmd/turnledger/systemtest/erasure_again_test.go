package systemtest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// heldTalk is what a client holds of a session: of its first turn all will be redacted, of the second the answer
// corrected, and of the third its run with a tool deleted, item by item. Each text ends with the session's word.
func heldTalk(word string) []any {
	says := func(role, text string) any { return map[string]any{"role": role, "content": text + word} }
	return []any{
		says("user", "REDACTED-Q-"), says("assistant", "REDACTED-A-"),
		says("user", "KEPT-2-"), says("assistant", "CORRECTED-"),
		says("user", "PRUNED-Q-"),
		map[string]any{"type": "function_call", "call_id": "c", "name": "f", "arguments": `{"of":"KEPT-3-` + word + `"}`},
		map[string]any{"type": "function_call_output", "call_id": "c", "output": "PRUNED-O-" + word},
		says("assistant", "PRUNED-A-"),
		says("user", "KEPT-4-"), says("assistant", "KEPT-5-"),
	}
}

// Beginnings of the texts that go, and of those that stay; the corrected one stays in the log until its chain goes.
var heldGone, heldKept = []string{"REDACTED", "PRUNED"}, []string{"KEPT-2-", "KEPT-3-", "KEPT-4-", "KEPT-5-"}

// inChat returns items as the messages of a file to import.
func inChat(items []any) (out []any) {
	for _, one := range items {
		switch i := one.(map[string]any); i["type"] {
		case "function_call":
			call := map[string]any{"name": i["name"], "arguments": i["arguments"]}
			out = append(out, map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{
				map[string]any{"id": i["call_id"], "type": "function", "function": call}}})
		case "function_call_output":
			out = append(out, map[string]any{"role": "tool", "tool_call_id": i["call_id"], "content": i["output"]})
		default:
			out = append(out, i)
		}
	}
	return out
}

// forgetHeld redacts, corrects and deletes what heldTalk says of a session. It returns the path of the corrected turn.
func forgetHeld(t *testing.T, p *stack.Process, id string) (corrected string) {
	t.Helper()
	turns := p.Get(t, stack.SessionPath(id)+"/turns?status=all&limit=100")["turns"].([]any)
	at := func(n int) string {
		return stack.SessionPath(id) + "/turns/" + turns[n].(map[string]any)["turn_id"].(string)
	}
	receipts := []string{p.Must(t, http.StatusOK, http.MethodPost, at(0)+"/redact", nil)["position"].(string)}
	p.Must(t, http.StatusOK, http.MethodPost, at(1)+"/correct",
		map[string]any{"request_id": "right", "answer_neutral": "KEPT-right"})
	for _, one := range itemsOf(t, p, id) {
		if item := one.(map[string]any); strings.Contains(fmt.Sprint(item), "PRUNED") {
			receipts = append(receipts[:1],
				receiptOf(t, p, http.MethodDelete, "/v1/conversations/"+id+"/items/"+item["id"].(string)))
		}
	}
	for _, r := range receipts { // a newer one of a turn took the place of the others
		waitReceipt(t, p, url.PathEscape(r))
	}
	return at(1)
}

// After a redaction, a correction and deletions a client sends the history that it holds ten times, by every call that
// takes one: nothing comes back, in no prompt, in no read and on no disk. Nothing stands twice, and what goes on behind
// the history of a conversation is one branch.
func TestAHistoryThatComesAgainBringsNothingBack(t *testing.T) {
	t.Parallel()
	d, env := newStorage(t)
	model := stack.NewModel(t)
	p := stack.Start(t, append(append(env, "TURNLEDGER_PARTITIONS=4"), model.Env()...),
		"serve", "--data-dir", d.nats, "--roles", "api,context,recent,audit,eraser,chat")
	send := func(input []any, with map[string]any) map[string]any {
		t.Helper()
		body := map[string]any{"input": input}
		maps.Copy(body, with)
		return p.Must(t, http.StatusOK, http.MethodPost, "/v1/responses", body)
	}
	// again sends the history for the nth time; branches is how many branches that makes of the session, and asks how
	// many questions come with it.
	type held struct {
		session        string
		branches, asks int
		again          func(n int)
	}
	all := map[string]held{}
	for word, c := range map[string]struct {
		ids, named, behind bool
		branches           int
	}{
		"ids": {ids: true, branches: 1}, "idsin": {ids: true, named: true},
		"idsbehind": {ids: true, behind: true, branches: 1},
		"nonein":    {named: true}, "nonebehind": {behind: true, branches: 1},
	} {
		id := p.Must(t, http.StatusOK, http.MethodPost, "/v1/conversations",
			map[string]any{"items": heldTalk(word)})["id"].(string)
		p.LinkIdentity(t, id, "alice")
		with := map[string]any{}
		if c.named {
			with["conversation"] = id
		}
		if c.behind {
			asks := []any{map[string]any{"role": "user", "content": "KEPT-6-" + word}}
			with["previous_response_id"] = send(asks, map[string]any{"conversation": id})["id"]
		}
		input := itemsOf(t, p, id)
		all[word] = held{id, c.branches, 10, func(n int) {
			sent := append(input, map[string]any{"role": "user", "content": fmt.Sprintf("MORE-%s-%d", word, n)})
			if !c.ids {
				for at, one := range sent {
					item := maps.Clone(one.(map[string]any))
					delete(item, "id")
					sent[at] = item
				}
			}
			a := send(sent, with)
			input = append(sent, a["output"].([]any)...)
			if c.behind {
				with["previous_response_id"] = a["id"]
			}
		}}
	}
	file := filepath.Join(t.TempDir(), "talk.jsonl")
	require.NoError(t, os.WriteFile(file, must.Get(json.Marshal(map[string]any{
		"conversation_id": "imported", "messages": inChat(heldTalk("imported")),
	}))(t), 0o600))
	imports := func(int) { p.Done(t, "import", file) }
	imports(0)
	p.LinkIdentity(t, "imported", "alice")
	all["imported"] = held{"imported", 0, 0, imports}
	var lines []string
	for n, turn := range [][2]string{
		{"REDACTED-Q-", "REDACTED-A-"}, {"KEPT-2-", "CORRECTED-"}, {"PRUNED-Q-", "PRUNED-A-"},
		{"KEPT-3-lines KEPT-4-", "KEPT-5-"},
	} {
		lines = append(lines, string(must.Get(json.Marshal(map[string]any{
			"session_id": "lines", "request_id": fmt.Sprint(n),
			"question_neutral": turn[0] + "lines", "answer_neutral": turn[1] + "lines",
		}))(t)))
	}
	records := func(int) {
		body := strings.NewReader(strings.Join(lines, "\n"))
		resp := must.Get(http.Post(p.URL+"/v1/turns", "application/x-ndjson", body))(t)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
	records(0)
	p.LinkIdentity(t, "lines", "alice")
	all["lines"] = held{"lines", 0, 0, records}

	p.WaitCaughtUp(t, "recent", "audit")
	d.flush(t)
	for word, stores := range d.storesHolding(append(heldGone, "CORRECTED")...) {
		require.ElementsMatch(t, []string{"nats", "redis", "postgres"}, stores, "%s is found", word)
	}
	var corrected []string
	for _, h := range all {
		corrected = append(corrected, forgetHeld(t, p, h.session))
	}
	for len(model.Asked) > 0 {
		<-model.Asked
	}
	before := strings.Count(p.Done(t, "replay"), "CORRECTED")
	for word, h := range all {
		for n := range 10 {
			h.again(n)
		}
		events := p.Done(t, "replay", "--session", h.session)
		require.Equal(t, h.branches, strings.Count(events, "session.branched.v1"), word)
	}
	for len(model.Asked) > 0 {
		require.NotRegexp(t, "REDACTED|PRUNED|CORRECTED", strings.Join(<-model.Asked, "\n"))
	}
	log, folded := p.Done(t, "replay"), p.Done(t, "replay", "--turns")
	require.Equal(t, before, strings.Count(log, "CORRECTED"))
	require.False(t, strings.Contains(log, "REDACTED") || strings.Contains(log, "PRUNED"))
	told := func(status, what string) (turns int) { // in so many turns of a status
		is := regexp.MustCompile(what)
		for line := range strings.Lines(folded) {
			if strings.Contains(line, `"status":"`+status) && is.MatchString(line) {
				turns++
			}
		}
		return turns
	}
	require.Equal(t, len(all), told("replaced", "CORRECTED"))
	require.Zero(t, told("finalized", "REDACTED|PRUNED|CORRECTED"))
	for word, h := range all {
		for _, kept := range heldKept {
			require.Equal(t, 1, told("finalized", kept+word+`\W`), "%s%s", kept, word)
		}
		for n := range h.asks {
			require.Equal(t, 1, told("finalized", fmt.Sprintf("MORE-%s-%d", word, n)), "%s %d", word, n)
		}
		seen := fmt.Sprint(itemsOf(t, p, h.session), p.Context(t, h.session))
		require.NotRegexp(t, "REDACTED|PRUNED|CORRECTED", seen)
	}
	for _, path := range corrected {
		out := p.Must(t, http.StatusOK, http.MethodPost, path+"/redact", nil)
		waitReceipt(t, p, url.PathEscape(out["position"].(string)))
	}
	p.WaitCaughtUp(t, "recent", "audit")
	d.flush(t)
	for _, word := range append(heldGone, "CORRECTED") {
		require.Empty(t, d.storesHolding(word)[word], word)
	}
	require.Len(t, d.storesHolding("KEPT-4-")["KEPT-4-"], 3)
}
