package systemtest_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// exportedRows are the rows of replay --turns without what is new in each log.
func exportedRows(t *testing.T, out string) (rows []map[string]any) {
	t.Helper()
	for line := range strings.Lines(out) {
		var row map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		maps.DeleteFunc(row, func(name string, _ any) bool {
			return slices.Contains([]string{"position", "created_at", "finalized_at"}, name)
		})
		rows = append(rows, row)
	}
	return rows
}

// recordAllKinds records turns of all kinds in a session, and returns the id of the one that is redacted.
func recordAllKinds(t *testing.T, p *stack.Process) (redacted string) {
	t.Helper()
	path := stack.SessionPath("s")
	whole := func(path string, body map[string]any) string {
		return p.Must(t, http.StatusCreated, http.MethodPost, path+"/turns", body)["turn_id"].(string)
	}
	call := `{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",` +
		`"function":{"name":"f","arguments":"{\"n\": 1e400}"}}]}`
	first := whole(path, map[string]any{"request_id": "r1", "identity_id": "ann", "question_neutral": "Where?",
		"question_translated": "Wo?", "translate_chat": true, "pipeline_name": "p", "consultant": "c", "repository": "r",
		"metadata": map[string]any{"channel": "web"}, "answer_translated": "Hier.",
		"answer_messages": []any{json.RawMessage(call),
			map[string]any{"role": "tool", "tool_call_id": "c1", "content": "here"},
			map[string]any{"role": "assistant", "content": "Here."}}, "answer_neutral": "Here."})
	gone := whole(path, map[string]any{"request_id": "r2", "question_neutral": "secret", "answer_neutral": "secret"})
	old := whole(path, map[string]any{"request_id": "r3", "question_neutral": "When?", "answer_neutral": "At nine."})
	for request, answer := range map[string]string{"f1": "At ten.", "f2": "At eleven."} {
		current := p.Get(t, path+"/turns")["turns"].([]any)[2].(map[string]any)["turn_id"].(string)
		p.Must(t, http.StatusOK, http.MethodPost, path+"/turns/"+current+"/correct",
			map[string]any{"request_id": request, "answer_neutral": answer})
	}
	for branch, from := range map[string]string{"first": first, "gone": gone, "old": old} {
		p.Must(t, http.StatusCreated, http.MethodPost, path+"/fork",
			map[string]any{"request_id": branch, "session_id": "branch-" + branch, "turn_id": current(t, p, from)})
		whole(stack.SessionPath("branch-"+branch), map[string]any{
			"request_id": "b", "question_neutral": "And " + branch + "?", "answer_neutral": "Yes.",
		})
	}
	p.Must(t, http.StatusOK, http.MethodPost, path+"/turns/"+gone+"/redact", map[string]any{})
	whole(path, map[string]any{"request_id": "r4", "question_neutral": "Still there?"})
	return gone
}

// current returns the newest version of a turn of the session s.
func current(t *testing.T, p *stack.Process, turn string) string {
	t.Helper()
	for _, x := range p.Get(t, stack.SessionPath("s")+"/turns?status=all")["turns"].([]any) {
		if row := x.(map[string]any); row["turn_id"] == turn && row["replaced_by_turn_id"] != nil {
			return current(t, p, row["replaced_by_turn_id"].(string))
		}
	}
	return turn
}

// What replay --turns prints, an import takes: in the server that it came from it changes nothing, and another server
// then has the same turns with their versions, links and branches, and the same contexts. Redacted turns stay out.
func TestTheTurnsOfAReplayAreImportedAgain(t *testing.T) {
	t.Parallel()
	p, other := stack.Serve(t, nil), stack.Serve(t, nil)
	gone := recordAllKinds(t, p)
	file := filepath.Join(t.TempDir(), "turns.jsonl")
	code, _, errs := p.Run(t, "replay", "--turns", "-o", file)
	require.Equal(t, stack.ExitDone, code, errs)
	export, err := os.ReadFile(file)
	require.NoError(t, err)
	before := p.Get(t, stack.SessionPath("s"))["position"]

	code, out, errs := p.Run(t, "import", file)
	require.Equal(t, stack.ExitDone, code, "%s%s", out, errs)
	require.Contains(t, out, "4 conversations with 8 turns: 0 turns recorded, 8 were there already")
	require.Contains(t, errs, "1 turn not imported: redacted")
	require.Contains(t, errs, "not kept: created_at")
	require.Equal(t, before, p.Get(t, stack.SessionPath("s"))["position"], "the import wrote to its own log")

	want := slices.DeleteFunc(exportedRows(t, string(export)), func(row map[string]any) bool {
		if row["forked_from_turn_id"] == gone {
			row["forked_from_turn_id"] = current(t, p, firstTurn(t, p)) // the last turn before it that is shown
		}
		return row["status"] == "redacted"
	})
	for _, recorded := range []string{"8 turns recorded, 0 were", "0 turns recorded, 8 were"} {
		code, out, errs = other.Run(t, "import", file)
		require.Equal(t, stack.ExitDone, code, "%s%s", out, errs)
		require.Contains(t, out, recorded)
		code, out, errs = other.Run(t, "replay", "--turns")
		require.Equal(t, stack.ExitDone, code, errs)
		require.ElementsMatch(t, want, exportedRows(t, out))
	}
	for _, session := range []string{"s", "branch-first", "branch-gone", "branch-old"} {
		require.Equal(t, p.Context(t, session), other.Context(t, session), session)
	}
}

func firstTurn(t *testing.T, p *stack.Process) string {
	t.Helper()
	return p.Get(t, stack.SessionPath("s")+"/turns?status=all")["turns"].([]any)[0].(map[string]any)["turn_id"].(string)
}

// Turns of a session that come in two exports are recorded in their order, and the turns of a branch alone bring the
// session that it was forked from.
func TestTurnsOfSeveralExportsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	p, other := stack.Serve(t, nil), stack.Serve(t, nil)
	recordAllKinds(t, p)
	var export strings.Builder
	for _, session := range []string{"branch-old", "s", "branch-old"} {
		code, out, errs := p.Run(t, "replay", "--turns", "--session", session)
		require.Equal(t, stack.ExitDone, code, errs)
		export.WriteString(out)
	}
	file := filepath.Join(t.TempDir(), "turns.jsonl")
	require.NoError(t, os.WriteFile(file, []byte(export.String()), 0o600))
	code, out, errs := other.Run(t, "import", file)
	require.Equal(t, stack.ExitDone, code, "%s%s", out, errs)
	for _, session := range []string{"s", "branch-old"} {
		require.Equal(t, p.Context(t, session), other.Context(t, session), session)
	}
}

// The events of a replay are not turns; the error says what to do.
func TestTheEventsOfAReplayAreNotImported(t *testing.T) {
	t.Parallel()
	p := stack.Serve(t, nil)
	p.RecordTurn(t, "s", "r", "Q", "A")
	file := filepath.Join(t.TempDir(), "events.jsonl")
	code, _, errs := p.Run(t, "replay", "-o", file)
	require.Equal(t, stack.ExitDone, code, errs)
	code, _, errs = p.Run(t, "import", file)
	require.Equal(t, stack.ExitFailed, code)
	require.Contains(t, errs, "events.jsonl:1: an event of the log, which is not imported: make the file with replay")
}
