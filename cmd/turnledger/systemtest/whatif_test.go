package systemtest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/services/export"
)

// told is a line of an answer of whatif.
type told struct {
	SessionID  string         `json:"session_id"`
	TurnID     string         `json:"turn_id"`
	Position   string         `json:"position"`
	Told       string         `json:"told"`
	TokensTold int            `json:"tokens_told"`
	TokensIf   int            `json:"tokens_if"`
	TurnsTold  int            `json:"turns_told"`
	TurnsIf    int            `json:"turns_if"`
	LeftOut    []string       `json:"left_out"`
	BroughtIn  []string       `json:"brought_in"`
	Total      map[string]int `json:"total"`
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
func TestWhatIfWithTheSettingsInForce(t *testing.T) {
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
	require.GreaterOrEqual(t, asked, len(surfaces)*len(most), "each conversation has a question")
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
	compared := 0
	for i, r := range less {
		if strings.HasPrefix(r.SessionID, "thread-") || strings.HasPrefix(r.SessionID, "server-") {
			// As a context of then, with the same bound.
			then := p.BuildContext(t, r.SessionID, map[string]any{"message": "m", "turn_id": r.TurnID,
				"max_messages": 4, "as_of": map[string]any{"position": r.Position}})
			require.EqualValues(t, then["history_turns"], r.TurnsIf, "%+v", r)
			compared++
		}
		require.Equal(t, rows[i].TokensTold, r.TokensTold)
		require.Equal(t, r.TurnsTold-len(r.LeftOut)+len(r.BroughtIn), r.TurnsIf, "%+v", r)
		require.Equal(t, "same", r.Told, "%+v", r)
	}
	require.Greater(t, compared, len(most))
}

// What a pipeline built its prompts with is assumed; what was withdrawn since leaves a part. The command line says the
// same as the API, and a table of it has the same rows.
func TestWhatIfOfOthersPrompts(t *testing.T) {
	t.Parallel()
	p := stack.Start(t, nil, "dev", "--data-dir", stack.DataDir(t))
	for i := range 5 {
		p.RecordExchange(t, "piped, twice", i)
		p.Ask(t, "asked", stack.Content(fmt.Sprint("question ", i)))
	}
	p.LinkIdentity(t, "piped, twice", "ada")
	rows, total := whatIf(t, p, "?sessions=piped%252C%20twice,asked&max_messages=2", nil)
	require.Equal(t, map[string]int{"turns": 10, "same": 5, "assumed": 5, "part": 0, "turns_told": 20, "turns_if": 8,
		"left_out": 12, "brought_in": 0, "tokens_told": total["tokens_told"], "tokens_if": total["tokens_if"]}, total)
	require.Less(t, total["tokens_if"], total["tokens_told"])
	for i, r := range rows {
		require.Equal(t, []string{"piped, twice", "asked"}[i/5], r.SessionID)
		require.Equal(t, []any{i % 5, min(i%5, 1)}, []any{r.TurnsTold, r.TurnsIf})
		for n, id := range r.LeftOut {
			require.Equal(t, rows[i/5*5+n].TurnID, id, "the oldest first")
		}
	}

	_, longer := whatIf(t, p, "", map[string]any{"identity_id": "ada", "system": strings.Repeat("Be brief. ", 50)})
	require.Equal(t, []int{5, 5}, []int{longer["turns"], longer["assumed"]})
	require.Greater(t, longer["tokens_if"], longer["tokens_told"]+5*50)
	_, none := whatIf(t, p, "?identity_id=ada&since=2100-01-01T00:00:00Z", nil)
	require.Zero(t, none["turns"])
	_, none = whatIf(t, p, "?sessions=unknown", nil)
	require.Zero(t, none["turns"])

	var lines []told
	for line := range strings.Lines(p.Done(t, "whatif", "--sessions", `piped\, twice,asked`, "--max-messages", "2", "--json")) {
		var row told
		require.NoError(t, json.Unmarshal([]byte(line), &row), line)
		lines = append(lines, row)
	}
	require.Equal(t, append(rows, told{Total: total}), lines)
	said := p.Done(t, "whatif", "--identity", "ada", "--since", "1h", "--max-tokens", "1")
	require.Contains(t, said, rows[4].TurnID)
	require.Contains(t, said, "5 answered turns: 0 told the same, 5 assumed, 0 known in part")
	file, system := filepath.Join(t.TempDir(), "if.parquet"), filepath.Join(t.TempDir(), "system.txt")
	require.NoError(t, os.WriteFile(system, []byte("Be brief.\n"), 0o600))
	p.Done(t, "whatif", "--since", "1h", "--max-messages", "2", "--format", "parquet", "-o", file)
	table := must.Get(parquet.ReadFile[export.WhatIfRow](file))(t)
	require.Len(t, table, 10)
	at := slices.IndexFunc(table, func(r export.WhatIfRow) bool { return r.TurnID == rows[4].TurnID })
	require.Equal(t, []any{rows[4].Position, rows[4].LeftOut}, []any{table[at].Position, table[at].LeftOut})
	info := must.Get(os.Stat(file))(t)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	said = p.Done(t, "whatif", "--since", "1h", "--system", system, "--summary", "--memory")
	require.Contains(t, said, "10 answered")
	for _, wrong := range [][]string{
		nil, {"--sessions", "a", "--identity", "ada"}, {"--identity", ""}, {"--sessions", "a", "--max-messages", "1"},
		{"--sessions", "a", "--max-tokens", "0"}, {"--sessions", "a", "--format", "parquet"},
		{"--sessions", "a", "-o", file}, {"--sessions", "a", "--system", file + "x"},
		{"--sessions", "a", "--json", "--format", "parquet", "-o", file},
	} {
		code, _, errs := p.Run(t, append([]string{"whatif"}, wrong...)...)
		require.Equal(t, stack.ExitUsage, code, "%v: %s", wrong, errs)
	}

	p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("asked")+"/turns/"+rows[6].TurnID+"/redact", nil)
	p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("asked")+"/turns/"+rows[9].TurnID+"/correct",
		map[string]any{"request_id": "c", "answer_neutral": "better"})
	after, _ := whatIf(t, p, "?sessions=asked", nil)
	var known []string
	for _, r := range after {
		known = append(known, r.Told)
	}
	require.Equal(t, []string{"same", "part", "part", "part"}, known)
	require.Equal(t, 2, after[2].TurnsTold, "the redacted one is not told of")
}
