package systemtest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// told is a line of an answer of whatif.
type told struct {
	SessionID  string   `json:"session_id"`
	TurnID     string   `json:"turn_id"`
	Position   string   `json:"position"`
	Told       string   `json:"told"`
	TokensTold int      `json:"tokens_told"`
	TokensIf   int      `json:"tokens_if"`
	TurnsTold  int      `json:"turns_told"`
	TurnsIf    int      `json:"turns_if"`
	LeftOut    []string `json:"left_out"`
	BroughtIn  []string `json:"brought_in"`
	Total      map[string]int
}

// whatIf asks with the query, or with a body, and returns the rows and the total.
func whatIf(t *testing.T, p *stack.Process, query string, body any) (rows []told, total map[string]int) {
	t.Helper()
	method, sent := http.MethodGet, io.Reader(nil)
	if body != nil {
		method, sent = http.MethodPost, bytes.NewReader(must.Get(json.Marshal(body))(t))
	}
	r := must.Get(http.NewRequestWithContext(t.Context(), method, p.URL+"/v1/whatif"+query, sent))(t)
	resp := must.Get(http.DefaultClient.Do(r))(t)
	said := all(t, resp)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode, said)
	require.Equal(t, "application/x-ndjson", resp.Header.Get("Content-Type"))
	for line := range strings.Lines(said) {
		require.Nil(t, total, "the total is the last line")
		var row told
		require.NoError(t, json.Unmarshal([]byte(line), &row), line)
		if total = row.Total; total == nil {
			rows = append(rows, row)
		}
	}
	require.Equal(t, len(rows), total["turns"])
	return rows, total
}

// spoken are the messages of a conversation that a chat completion can be sent.
func spoken(c stack.Conversation) (out []map[string]any) {
	for _, m := range c.Messages {
		if of, is := m.(map[string]any); is {
			out = append(out, of)
		}
	}
	return out
}

// With the settings in force, every answer that the product's own surfaces gave comes out the same, over real
// conversations; another prompt comes out with others.
func TestWhatModelsWereTold(t *testing.T) {
	t.Parallel()
	p := stack.Start(t, []string{
		"TURNLEDGER_PARTITIONS=4", "TURNLEDGER_SYSTEM_PROMPT=Be brief.", "TURNLEDGER_MODEL_CONTEXT=3000",
	}, "dev", "--data-dir", stack.DataDir(t))
	post := func(path string, body map[string]any, header ...string) map[string]any {
		t.Helper()
		r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL+path,
			bytes.NewReader(must.Get(json.Marshal(body))(t))))(t)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		resp := must.Get(http.DefaultClient.Do(r))(t)
		said := all(t, resp)
		require.Less(t, resp.StatusCode, 300, said)
		var out map[string]any
		require.NoError(t, json.Unmarshal([]byte(said), &out))
		return out
	}
	asked := 0
	surfaces := map[string]func(id string, list []map[string]any){
		"thread": func(id string, list []map[string]any) {
			for n, m := range list {
				if text, _ := m["content"].(string); m["role"] == "user" && text != "" {
					post("/v1/threads/thread-"+id+"/messages", map[string]any{
						"content": text, "max_messages": []any{nil, 4, nil, 8}[n%4]})
					asked++
				}
			}
		},
		"conversation": func(_ string, list []map[string]any) {
			c := post("/v1/conversations", map[string]any{})
			for n, m := range list {
				if text, _ := m["content"].(string); m["role"] == "user" && text != "" {
					body := map[string]any{"conversation": c["id"], "input": text, "truncation": "auto"}
					if n%3 == 0 {
						body["instructions"] = "Speak of " + fmt.Sprint(n)
					}
					post("/v1/responses", body)
					asked++
				}
			}
		},
		"tools": func(_ string, list []map[string]any) {
			var previous any
			for _, m := range list {
				text, _ := m["content"].(string)
				if m["role"] != "user" || text == "" {
					continue
				}
				body := map[string]any{"input": text, "truncation": "auto", "tools": []any{map[string]any{
					"type": "function", "name": "look", "parameters": map[string]any{"type": "object",
						"required": []any{"at"}, "properties": map[string]any{"at": map[string]any{"type": "string"}}},
				}}}
				if previous != nil {
					body["previous_response_id"] = previous
				}
				out := post("/v1/responses", body)
				call := out["output"].([]any)[0].(map[string]any)
				out = post("/v1/responses", map[string]any{"previous_response_id": out["id"], "truncation": "auto",
					"input": []any{map[string]any{
						"type": "function_call_output", "call_id": call["call_id"], "output": strings.ToUpper(text)}}})
				previous = out["id"]
				asked++
			}
		},
		"completion, server": func(id string, list []map[string]any) {
			for _, m := range list {
				if text, _ := m["content"].(string); m["role"] == "user" && text != "" {
					post("/v1/chat/completions", map[string]any{"model": "echo", "messages": []any{
						map[string]any{"role": "developer", "content": []any{
							map[string]any{"type": "text", "text": "Speak like a sailor."}}}, m,
					}}, "X-Turnledger-Session", "server-"+id, "X-Turnledger-History", "server")
					asked++
				}
			}
		},
		"completion, client": func(id string, list []map[string]any) {
			var history []any
			for _, m := range list {
				text, _ := m["content"].(string)
				if history = append(history, m); m["role"] != "user" || text == "" {
					history = history[:len(history)-1]
					continue
				}
				out := post("/v1/chat/completions", map[string]any{"model": "echo",
					"messages": append([]any{map[string]any{"role": "system", "content": "Be kind."}}, history...)},
					"X-Turnledger-Session", "client-"+id)
				history = append(history, out["choices"].([]any)[0].(map[string]any)["message"])
				asked++
			}
		},
	}
	most := map[string]int{}
	for _, c := range stack.ReadConversations(t, stack.ConversationFiles(t)) {
		kind, _, _ := strings.Cut(c.ID, "-")
		if most[kind]++; most[kind] > 3 || len(c.Messages) > 200 {
			continue
		}
		for _, ask := range surfaces {
			ask(fmt.Sprint(kind, most[kind]), spoken(c))
		}
	}
	require.Greater(t, asked, 200)
	rows, total := whatIf(t, p, "?since=2000-01-01T00:00:00Z", nil)
	for _, r := range rows {
		require.Equal(t, "same", r.Told, "%+v", r)
		require.Equal(t, []any{r.TokensTold, r.TurnsTold, []string{}, []string{}},
			[]any{r.TokensIf, r.TurnsIf, r.LeftOut, r.BroughtIn}, "%+v", r)
	}
	require.Len(t, rows, asked)
	require.Equal(t, asked, total["same"])

	less, saved := whatIf(t, p, "?since=2000-01-01T00:00:00Z&max_messages=4", nil)
	require.Len(t, less, asked)
	require.Less(t, saved["tokens_if"], total["tokens_told"])
	for i, r := range less {
		require.Equal(t, rows[i].TokensTold, r.TokensTold)
		require.Equal(t, r.TurnsTold-len(r.LeftOut)+len(r.BroughtIn), r.TurnsIf, "%+v", r)
		require.Equal(t, "same", r.Told, "%+v", r)
	}
}
