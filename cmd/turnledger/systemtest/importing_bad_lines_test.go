package systemtest_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
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
	for round := range 20 {
		file := filepath.Join(t.TempDir(), "c.jsonl")
		require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(lines, "#", fmt.Sprint(round))), 0o600))
		errs := p.Fails(t, "import", "--parallel", "1", file)
		require.Contains(t, errs, "c.jsonl:2: another conversation")
		require.Contains(t, errs, "c.jsonl:4: not UTF-8")
		require.Contains(t, errs, "2 lines were not imported whole")
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
	p := stack.Serve(t, nil)
	var all []map[string]any
	for i := range 30 {
		all = append(all, map[string]any{"conversation_id": fmt.Sprint("c", i), "title": "T", "messages": []any{
			map[string]any{"role": "user", "content": fmt.Sprint("Q", i)},
			map[string]any{"role": "assistant", "content": "A"},
		}})
	}
	compact, err := json.Marshal(all)
	require.NoError(t, err)
	wide, err := json.MarshalIndent(all, "", "  ")
	require.NoError(t, err)
	one, err := json.MarshalIndent(all[0], "", "  ")
	require.NoError(t, err)
	others, err := json.MarshalIndent(all[1:], "", "  ")
	require.NoError(t, err)
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
	require.Len(t, p.Context(t, "c29"), 2)
}

// Of failures of one kind the first ten are reported, in the order of the file, each with its line; the others are
// counted.
func TestFailuresOfOneKindAreCounted(t *testing.T) {
	t.Parallel()
	p := stack.Serve(t, nil)
	text := "[\n"
	for i := range 2000 {
		text += fmt.Sprintf(`{"messages":[{"role":"user","content":"%d"}]},`+"\n", i)
		if i%100 == 0 {
			text += fmt.Sprintf(`{"conversation_id":"r%d","messages":[{"role":"user","content":"Q"},{"role":"x%d"}]},`+"\n", i, i)
		}
	}
	code, _, errs := importText(t, p, text+`{"conversation_id":"cut off","mess`)
	require.Equal(t, stack.ExitFailed, code)
	var lines []int
	for _, found := range regexp.MustCompile(`(?m)^.*c\.json:(\d+): `).FindAllStringSubmatch(errs, -1) {
		n, err := strconv.Atoi(found[1])
		require.NoError(t, err)
		lines = append(lines, n)
	}
	require.Len(t, lines, 21, "%d lines", len(lines))
	require.IsIncreasing(t, lines)
	require.Contains(t, errs, "c.json:3: message 2: role \"x0\": not a role of a chat message")
	require.Contains(t, errs, "c.json:2022: not JSON")
	require.Contains(t, errs, "and 1990 lines more: conversation_id is missing")
	require.Contains(t, errs, "and 10 lines more: not a role of a chat message")
	require.Contains(t, errs, "2021 lines were not imported whole")
}

// Roles by the names of other products are those of chat messages, wherever they stand.
func TestRolesOfOtherProductsAreMapped(t *testing.T) {
	t.Parallel()
	p := stack.Serve(t, nil)
	code, _, errs := importText(t, p, `{"conversation_id":"s","messages":[{"role":"System","content":"Be brief."},`+
		`{"content":"one","role":"human","x":1},{"role":"AI","content":"two"},{"role":"User","content":"three"}]}`)
	require.Equal(t, stack.ExitDone, code, errs)
	require.Equal(t, []any{
		map[string]any{"role": "system", "content": "Be brief."},
		map[string]any{"role": "user", "content": "one", "x": 1.0},
		map[string]any{"role": "assistant", "content": "two"}, map[string]any{"role": "user", "content": "three"},
	}, p.Context(t, "s"))
}
