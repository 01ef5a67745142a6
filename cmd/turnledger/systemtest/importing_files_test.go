package systemtest_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
)

// A line that can't be read is reported, and the rest is imported. Each round imports sessions of its own.
func TestALineThatCannotBeReadIsReported(t *testing.T) {
	t.Parallel()
	p := stack.Shared(t)
	lines := "\xef\xbb\xbf" +
		`{"conversation_id":"a#","messages":[{"role":"user","content":"first"}]}
{"conversation_id":"a#","messages":[{"role":"user","content":"second"}]}
{"conversation_id":"a#","messages":[{"role":"user","content":"first"}]}
{"conversation_id":"b#","messages":[{"role":"user","content":"caf` + "\xe9" + `"}]}
{"conversation_id":"c#","messages":[{"role":"user","content":"last"}]}`
	for round := range 3 {
		file := filepath.Join(t.TempDir(), "c.jsonl")
		require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(lines, "#", fmt.Sprint(round))), 0o600))
		errs := p.Fails(t, "import", "--parallel", "1", file)
		must.Contain(t, errs, "c.jsonl:2: another conversation", "c.jsonl:4: not UTF-8",
			"2 lines were not imported whole")
		for id, question := range map[string]string{"a": "first", "c": "last"} {
			require.Equal(t, []any{map[string]any{"role": "user", "content": question}},
				p.Context(t, fmt.Sprint(id, round)))
		}
		found := p.Get(t, stack.SessionPath(fmt.Sprint("b", round)))["found"]
		require.Equal(t, false, found)
	}
}

// importText imports a file, and returns what the import prints.
func importText(t *testing.T, p *stack.Process, text string) (code int, out, errs string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "c.json")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return p.Run(t, "import", file)
}

// A JSON array on any number of lines is taken as its elements, and so are values that are written on many lines.
func TestAnArrayOfConversationsIsImported(t *testing.T) {
	t.Parallel()
	p := stack.Shared(t)
	var all []map[string]any
	for i := range 30 {
		all = append(all, map[string]any{"conversation_id": fmt.Sprint("array-", i), "title": "T", "messages": []any{
			map[string]any{"role": "user", "content": fmt.Sprint("Q", i)},
			map[string]any{"role": "assistant", "content": "A"},
		}})
	}
	compact := must.Get(json.Marshal(all))(t)
	wide := must.Get(json.MarshalIndent(all, "", "  "))(t)
	one := must.Get(json.MarshalIndent(all[0], "", "  "))(t)
	others := must.Get(json.MarshalIndent(all[1:], "", "  "))(t)
	recorded := "30 turns recorded, 0 were"
	for form, text := range map[string]string{
		"compact": string(compact), "wide": "\xef\xbb\xbf\n " + string(wide) + "\n",
		"values": string(one) + "\n" + string(others),
	} {
		code, out, errs := importText(t, p, text)
		require.Equal(t, stack.ExitDone, code, "%s: %s%s", form, out, errs)
		require.Contains(t, out, recorded, form)
		require.Equal(t, 1, strings.Count(errs, "not kept: title"), errs)
		recorded = "0 turns recorded, 30 were"
	}
	require.Len(t, p.Context(t, "array-29"), 2)
}

// Of failures of one kind the first ten are reported, in the order of the file, each with its line; the others are
// counted.
func TestFailuresOfOneKindAreCounted(t *testing.T) {
	t.Parallel()
	p := stack.Shared(t)
	text := "[\n"
	for i := range 2000 {
		text += fmt.Sprintf(`{"messages":[{"role":"user","content":"%d"}]},`+"\n", i)
		if i%100 == 0 {
			text += fmt.Sprintf(`{"conversation_id":"odd-%d","messages":[{"role":"user","content":"Q"},{"role":"x%d"}]},`+"\n", i, i)
		}
	}
	code, _, errs := importText(t, p, text+`{"conversation_id":"cut off","mess`)
	require.Equal(t, stack.ExitFailed, code)
	var lines []int
	for _, found := range regexp.MustCompile(`(?m)^.*c\.json:(\d+): `).FindAllStringSubmatch(errs, -1) {
		n := must.Get(strconv.Atoi(found[1]))(t)
		lines = append(lines, n)
	}
	require.Len(t, lines, 21, "%d lines", len(lines))
	require.IsIncreasing(t, lines)
	must.Contain(t, errs, "c.json:3: message 2: role \"x0\": not a role of a chat message", "c.json:2022: not JSON",
		"and 1990 lines more: conversation_id is missing", "and 10 lines more: not a role of a chat message",
		"2021 lines were not imported whole")
}

// Roles by the names of other products are those of chat messages, wherever they stand.
func TestRolesOfOtherProductsAreMapped(t *testing.T) {
	t.Parallel()
	p := stack.Shared(t)
	code, _, errs := importText(t, p, `{"conversation_id":"roles","messages":[{"role":"System","content":"Be brief."},`+
		`{"content":"one","role":"human","x":1},{"role":"AI","content":"two"},{"role":"User","content":"three"}]}`)
	require.Equal(t, stack.ExitDone, code, errs)
	require.Equal(t, []any{
		map[string]any{"role": "system", "content": "Be brief."},
		map[string]any{"role": "user", "content": "one", "x": 1.0},
		map[string]any{"role": "assistant", "content": "two"}, map[string]any{"role": "user", "content": "three"},
	}, p.Context(t, "roles"))
}

// importLines imports conversations, each an id and the JSON of its messages.
func importLines(t testing.TB, p *stack.Process, conversations ...[2]string) (code int, out, errs string) {
	t.Helper()
	var text strings.Builder
	for _, c := range conversations {
		fmt.Fprintf(&text, `{"conversation_id":%q,"messages":[%s]}`+"\n", c[0], c[1])
	}
	file := filepath.Join(t.TempDir(), "c.jsonl")
	require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o600))
	return p.Run(t, "import", file)
}

// Where an imported conversation has changed since, a second import reports it and leaves the log as it is. Where it
// has only become longer, the new turns are imported.
func TestAChangedConversationIsReported(t *testing.T) {
	t.Parallel()
	p := stack.Shared(t)
	const (
		a, b     = `{"role":"user","content":"A"}`, `{"role":"assistant","content":"B"}`
		toolCall = `{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",`
		more     = `{"role":"assistant","content":"more"}`
		next     = `{"role":"user","content":"next"}`
		calls    = toolCall + `"function":{"name":"f","arguments":"{}"}}]}`
		odd      = `{"role":"user","content":"","translated":"bonjour"}`
		huge     = `{"role":"user","content":"A","x":1e400}`
		othercal = toolCall + `"function":{"name":"g","arguments":"{}"}}]}`
	)
	code, _, errs := importLines(t, p, [2]string{"goes-on", a + "," + b}, [2]string{"asked", a},
		[2]string{"longer", a + "," + b}, [2]string{"calls", a + "," + calls}, [2]string{"odd", odd + "," + b},
		[2]string{"huge", huge + "," + b})
	require.Equal(t, stack.ExitDone, code, errs)
	code, out, errs := importLines(t, p,
		[2]string{"goes-on", a + "," + b + "," + next}, [2]string{"asked", a + `,{"role":"user","content":"and"},` + b},
		[2]string{"longer", a + "," + b + "," + more + "," + next}, [2]string{"calls", a + "," + othercal},
		[2]string{"odd", odd + "," + b + "," + next}, [2]string{"huge", huge + "," + b + "," + next})
	require.Equal(t, stack.ExitFailed, code)
	require.Contains(t, out, "3 turns recorded")
	for line, half := range map[int]string{2: "question", 3: "answer", 4: "answer"} {
		require.Regexp(t, fmt.Sprintf(`c\.jsonl:%d: turn 1: the log holds this turn with another %s`, line, half), errs)
	}
	require.NotContains(t, errs, "c.jsonl:1:")
	require.NotRegexp(t, `c\.jsonl:[56]:`, errs)
	asked := p.Get(t, stack.SessionPath("odd")+"/turns")["turns"].([]any)[0].(map[string]any)
	require.Equal(t, "bonjour", asked["question_translated"])
	require.Len(t, p.Context(t, "goes-on"), 3)
	require.Len(t, p.Context(t, "asked"), 1)
	require.Len(t, p.Context(t, "longer"), 2)
}

// A turn that was redacted after its import stays redacted in a second import, which reports no error.
func TestARedactedTurnStaysAwayFromAnImport(t *testing.T) {
	t.Parallel()
	p := stack.Shared(t)
	line := [2]string{"redacted", `{"role":"user","content":"A"},{"role":"assistant","content":"B"}`}
	code, _, errs := importLines(t, p, line)
	require.Equal(t, stack.ExitDone, code, errs)
	page := p.Get(t, stack.SessionPath("redacted")+"/turns")
	id := page["turns"].([]any)[0].(map[string]any)["turn_id"].(string)
	p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("redacted")+"/turns/"+id+"/redact", map[string]any{})
	code, out, errs := importLines(t, p, line)
	require.Equal(t, stack.ExitDone, code, errs)
	require.Contains(t, out, "0 turns recorded, 1 were there already")
	require.Empty(t, p.Context(t, "redacted"))
}

// Contents that are lists of parts keep their text, half a surrogate pair comes back as it was written, and an image
// that is larger than a request may be becomes the text [Image sent: photo].
//
//conformance:f4
func TestImportOfPartsAndImages(t *testing.T) {
	t.Parallel()
	p := stack.Shared(t)
	photo := "data:image/png;base64," + base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\n"+
		strings.Repeat("photo", 300_000)))
	parts := `{"role":"user","content":[{"type":"text","text":"Plain text"},{"type":"text","text":"in parts"}]},` +
		`{"role":"assistant","content":[{"type":"text","text":"ok"}]}`
	lone := `{"role":"user","content":"half \ud83d emoji"},{"role":"assistant","content":"yes"}`
	image := `{"role":"user","content":[{"type":"text","text":"what is this"},` +
		`{"type":"image_url","image_url":{"url":"` + photo + `"}}]},{"role":"assistant","content":"a cat"}`
	code, _, errs := importLines(t, p, [2]string{"parts", parts}, [2]string{"lone", lone}, [2]string{"image", image})
	require.Equal(t, stack.ExitDone, code, errs)
	history := p.Get(t, stack.SessionPath("parts")+"/history")["history"].([]any)
	require.Equal(t, []any{map[string]any{"question_neutral": "Plain text\nin parts", "answer_neutral": "ok"}}, history)
	resp := must.Get(http.Post(p.URL+stack.SessionPath("lone")+"/context", "application/json",
		strings.NewReader(`{"message":"now"}`)))(t)
	raw := must.Get(io.ReadAll(resp.Body))(t)
	require.NoError(t, resp.Body.Close())
	require.Contains(t, string(raw), "half \ufffd emoji")
	got := p.Context(t, "image")
	require.Len(t, got, 2)
	require.Equal(t, []any{map[string]any{"type": "text", "text": "what is this"},
		map[string]any{"type": "text", "text": "[Image sent: photo]"}}, got[0].(map[string]any)["content"])
}

// An import waits while the server restarts, and goes on.
func TestAnImportOutlastsARestart(t *testing.T) {
	t.Parallel()
	dir, address := stack.DataDir(t), stack.FreeAddress(t)
	p := stack.LaunchAt(t, address, nil, "serve", "--data-dir", dir)
	p.WaitReady(t)
	file := stack.WriteConversations(t, rand.New(rand.NewPCG(4, 4)), 0)
	cmd := p.Command(t, "import", "--parallel", "4", file)
	var errs strings.Builder
	cmd.Stderr = &errs
	require.NoError(t, cmd.Start())
	const quarter = 2 * stack.WrittenTurns / 4 // of the events
	hang.Until(t, func() bool { return logHead(t, p) > quarter })
	p.Kill(t)
	p = stack.LaunchAt(t, address, nil, "serve", "--data-dir", dir)
	p.WaitReady(t)
	require.NoError(t, cmd.Wait(), "%s", &errs)
	for _, c := range stack.ReadConversations(t, []string{file}) {
		require.Equal(t, c.Messages, p.Context(t, c.ID))
	}
}

// logHead returns how many events the log has.
func logHead(t testing.TB, p *stack.Process) uint64 {
	t.Helper()
	list := p.Get(t, "/v1/projections")["projections"].([]any)
	return must.Get(events.ParsePosition(list[0].(map[string]any)["head"].(string)))(t).Seq
}

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
	export := must.Get(os.ReadFile(file))(t)
	before := p.Get(t, stack.SessionPath("s"))["position"]

	code, out, errs := p.Run(t, "import", file)
	require.Equal(t, stack.ExitDone, code, "%s%s", out, errs)
	require.Contains(t, out, "4 conversations with 8 turns: 0 turns recorded, 8 were there already")
	must.Contain(t, errs, "1 turn not imported: redacted", "not kept: created_at")
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
	// A session whose turns come in two exports has them in their order, and the turns of a branch alone bring the
	// session that it was forked from. The events of a replay are not turns; the error says what to do.
	var parts strings.Builder
	for _, session := range []string{"branch-old", "s", "branch-old"} {
		parts.WriteString(p.Done(t, "replay", "--turns", "--session", session))
	}
	require.NoError(t, os.WriteFile(file, []byte(parts.String()), 0o600))
	later := stack.Serve(t, nil)
	later.Done(t, "import", file)
	for _, session := range []string{"s", "branch-old"} {
		require.Equal(t, p.Context(t, session), later.Context(t, session), session)
	}
	lines := filepath.Join(t.TempDir(), "events.jsonl")
	p.Done(t, "replay", "-o", lines)
	require.Contains(t, p.Fails(t, "import", lines),
		"events.jsonl:1: an event of the log, which is not imported: make the file with replay")
}

// So are turns of items: questions of files and images, and what deleted items left of a turn.
func TestTurnsThatLackTextsAreImportedAgain(t *testing.T) {
	t.Parallel()
	p, other := stack.Serve(t, nil), stack.Serve(t, nil)
	item := func(role string, content any) map[string]any { return map[string]any{"role": role, "content": content} }
	part := func(kind, name, value string) []any { return []any{map[string]any{"type": kind, name: value}} }
	image := part("image_url", "image_url", "data:image/png;base64,iVBORw0KGgo"+strings.Repeat("A", 80))
	id := p.Must(t, http.StatusOK, http.MethodPost, "/v1/conversations", nil)["id"].(string)
	var made []string
	for _, items := range [][]any{
		{item("user", part("input_file", "file_id", "file_1")), item("assistant", "A file.")},
		{item("user", "gone"), item("assistant", "It stays.")},
		{item("user", "It stays, too."), item("assistant", "gone")},
		{item("user", part("unheard", "of", "x")), item("assistant", "The last.")},
	} {
		for _, i := range p.Must(t, http.StatusOK, http.MethodPost, "/v1/conversations/"+id+"/items",
			map[string]any{"items": items})["data"].([]any) {
			made = append(made, i.(map[string]any)["id"].(string))
		}
	}
	for _, gone := range []string{made[2], made[5]} {
		p.Must(t, http.StatusOK, http.MethodDelete, "/v1/conversations/"+id+"/items/"+gone, nil)
	}
	p.Must(t, http.StatusCreated, http.MethodPost, stack.SessionPath(id)+"/turns", map[string]any{
		"request_id": "native", "question_messages": []any{item("user", image)}, "answer_neutral": "An image.",
	})
	file := filepath.Join(t.TempDir(), "turns.jsonl")
	p.Done(t, "replay", "--turns", "-o", file)
	before := p.Get(t, stack.SessionPath(id))["position"]
	require.Contains(t, p.Done(t, "import", file), "0 turns recorded, 5 were there already")
	require.Equal(t, before, p.Get(t, stack.SessionPath(id))["position"])
	require.Contains(t, other.Done(t, "import", file), "5 turns recorded")
	require.Contains(t, other.Done(t, "import", file), "0 turns recorded, 5 were there already")

	said := func(p *stack.Process) (all []any) {
		for _, m := range p.Context(t, id) {
			if m.(map[string]any)["content"] != "" { // what stands for a half that was emptied
				all = append(all, m)
			}
		}
		return all
	}
	require.Len(t, said(p), 8)
	require.Equal(t, withoutItems(said(p)), withoutItems(said(other)))
	history := other.Get(t, stack.SessionPath(id)+"/history")["history"]
	require.Equal(t, p.Get(t, stack.SessionPath(id)+"/history")["history"], history)
}

// withoutItems returns messages without the ids of deleted items' neighbours, which are of one log.
func withoutItems(messages []any) (out []string) {
	for _, m := range messages {
		out = append(out, fmt.Sprint(m.(map[string]any)["role"], m.(map[string]any)["content"]))
	}
	return out
}

func firstTurn(t *testing.T, p *stack.Process) string {
	t.Helper()
	return p.Get(t, stack.SessionPath("s")+"/turns?status=all")["turns"].([]any)[0].(map[string]any)["turn_id"].(string)
}
