package systemtest_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// chatGPTExport writes an export of n conversations. Each has three turns, and the second and the last question were
// edited once, so that there are two forks. It returns the ids of the conversations in the order of their activity.
func chatGPTExport(t *testing.T, path string, n, turns int) (ids []string) {
	t.Helper()
	var all []any
	for c := range n {
		id := fmt.Sprintf("conversation-%03d", c)
		mapping := map[string]any{"root": map[string]any{"parent": nil, "message": nil}}
		at := float64(1700000000 + 1000*c)
		add := func(name, parent, role string) string {
			at++
			mapping[name] = map[string]any{"parent": parent, "message": map[string]any{
				"author": map[string]any{"role": role}, "create_time": at,
				"content": map[string]any{"content_type": "text", "parts": []string{id + " " + name}},
			}}
			return name
		}
		last := "root"
		for k := range turns {
			if k > 0 {
				add(fmt.Sprint("b", k), add(fmt.Sprint("v", k), last, "user"), "assistant")
			}
			last = add(fmt.Sprint("a", k), add(fmt.Sprint("u", k), last, "user"), "assistant")
		}
		all = append([]any{map[string]any{
			"conversation_id": id, "title": "Title " + id, "mapping": mapping, "current_node": last, "update_time": at,
		}}, all...) // the newest first, as ChatGPT has them
		ids = append(ids, id)
	}
	require.NoError(t, os.WriteFile(path, must.Get(json.Marshal(all))(t), 0o600))
	return ids
}

// A server that is killed (-9) in the middle of an import of an export has, after a second import, each conversation
// with its forks once, in the order of their activity, with titles and original times.
func TestAnExportIsImportedOnceWhateverIsKilled(t *testing.T) {
	t.Parallel()
	seed := stack.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 7))
	dir, file := stack.DataDir(t), filepath.Join(t.TempDir(), "conversations.json")
	const conversations, turns = 60, 3
	ids := chatGPTExport(t, file, conversations, turns)
	args := []string{"import", "--from", "chatgpt", "--identity", "ada", file}
	for range 2 {
		p := stack.Start(t, nil, "dev", "--data-dir", dir)
		cmd := p.Command(t, args...)
		require.NoError(t, cmd.Start())
		last := ids[rng.IntN(conversations-1)]
		hang.Until(t, func() bool { return p.Get(t, stack.SessionPath(last))["found"] == true })
		p.Kill(t)
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // broken off
	}
	p := stack.Start(t, nil, "dev", "--data-dir", dir)
	p.Done(t, args...)
	out := p.Done(t, args...)
	require.Contains(t, out, fmt.Sprintf("%d turns: 0 turns recorded", conversations*(turns+turns-1)), "seed %d", seed)
	for _, id := range ids {
		var want []any
		for k := range turns {
			want = append(want, map[string]any{"role": "user", "content": fmt.Sprintf("%s u%d", id, k)},
				map[string]any{"role": "assistant", "content": fmt.Sprintf("%s a%d", id, k)})
		}
		require.Equal(t, want, p.Context(t, id), "seed %d", seed)
	}
	first := p.Get(t, stack.SessionPath(ids[0])+"/turns")["turns"].([]any)[0].(map[string]any)
	require.Equal(t, map[string]any{"original_created_at": "2023-11-14T22:13:21Z"}, first["metadata"])
	p.WaitCaughtUp(t, "audit")
	page := p.Must(t, http.StatusOK, http.MethodPost, "/v1/sessions/query",
		map[string]any{"identity_id": "ada", "limit": 200})
	listed, roots := page["sessions"].([]any), []string{}
	require.Len(t, listed, conversations*turns)
	for _, x := range listed {
		s := x.(map[string]any)
		require.True(t, strings.HasPrefix(s["title"].(string), "Title conversation-"))
		if s["forked_from"] == nil {
			roots = append([]string{s["session_id"].(string)}, roots...)
		}
	}
	require.Equal(t, ids, roots, "the order of their activity")
}

// What was redacted or erased stays so when its export comes again, and without --from the import says which to use.
func TestAnExportThatComesAgainRevivesNothing(t *testing.T) {
	t.Parallel()
	p := stack.Start(t, nil, "dev", "--data-dir", stack.DataDir(t))
	file := filepath.Join(t.TempDir(), "conversations.json")
	ids := chatGPTExport(t, file, 2, 2)
	code, _, errs := p.Run(t, "import", file)
	require.Equal(t, 2, code)
	require.Contains(t, errs, "--from chatgpt")
	p.Done(t, "import", "--from", "chatgpt", file)
	turns := p.Get(t, stack.SessionPath(ids[0])+"/turns")["turns"].([]any)
	p.Done(t, "redact", "--reason", "test", ids[0], turns[0].(map[string]any)["turn_id"].(string))
	p.Done(t, "erase", "--yes", "--session", ids[1])
	out := p.Done(t, "import", "--from", "chatgpt", file)
	require.Contains(t, out, ": 0 turns recorded")
	require.Equal(t, []any{
		map[string]any{"role": "user", "content": ids[0] + " u1"},
		map[string]any{"role": "assistant", "content": ids[0] + " a1"},
	}, p.Context(t, ids[0]))
	require.Equal(t, false, p.Get(t, stack.SessionPath(ids[1]))["found"])
	left := p.Done(t, "replay", "--turns")
	require.NotContains(t, left, ids[1]+" u") // a fork has what is its own
	require.Contains(t, left, ids[1]+" v1")
}
