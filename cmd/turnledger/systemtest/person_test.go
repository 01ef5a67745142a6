package systemtest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// folder is what an export of a person made.
type folder map[string]string

func exported(t *testing.T, p *stack.Process, identity string) folder {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	p.Done(t, "export", "--identity", identity, "--folder", dir)
	require.Equal(t, os.FileMode(0o700), must.Get(os.Stat(dir))(t).Mode().Perm())
	out := folder{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		out[strings.TrimPrefix(path, dir+"/")] = string(raw)
		return err
	}))
	return out
}

func (f folder) read(t *testing.T, name string, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(f[name]), into), name)
}

func (f folder) all() string { return fmt.Sprint(map[string]string(f)) }

// turns are the ids of the turns that the folder shows in the sessions that they stand in.
func (f folder) turns(t *testing.T) (ids []string) {
	t.Helper()
	for name := range f {
		if !strings.HasPrefix(name, "sessions/") || !strings.HasSuffix(name, ".json") {
			continue
		}
		var s struct {
			Turns []struct {
				ID        string `json:"turn_id"`
				Inherited bool
			}
		}
		f.read(t, name, &s)
		for _, turn := range s.Turns {
			if !turn.Inherited {
				ids = append(ids, turn.ID)
			}
		}
	}
	return ids
}

// listed are the ids of the turns that an identity's listing shows.
func listed(t *testing.T, p *stack.Process, identity string) (ids []string) {
	t.Helper()
	p.WaitCaughtUp(t, "audit")
	for cursor := ""; ; {
		page := p.Get(t, "/v1/identities/"+identity+"/turns?limit=200"+cursor)
		for _, turn := range page["turns"].([]any) {
			if s := turn.(map[string]any)["status"]; s == "finalized" || s == "pending" {
				ids = append(ids, turn.(map[string]any)["turn_id"].(string))
			}
		}
		next, more := page["next_cursor"].(string)
		if !more {
			return ids
		}
		cursor = "&cursor=" + next
	}
}

// A person's folder has what the listing of the identity shows and nothing of another, also while turns are redacted;
// after an erasure it has receipts and no text.
func TestThePersonsData(t *testing.T) {
	t.Parallel()
	p := stack.Start(t, nil, "dev", "--data-dir", stack.DataDir(t))
	const odd = "../odd id"
	for i := range 12 {
		p.RecordExchange(t, odd, i)
		p.RecordTurn(t, "bobs", fmt.Sprint("r", i), fmt.Sprint("bob asks ", i), "bob hears")
	}
	p.Must(t, http.StatusCreated, http.MethodPost, stack.SessionPath("long")+"/turns", map[string]any{
		"request_id": "r", "question_neutral": "of the long one", "answer_neutral": "> answered", "identity_id": "ada",
		"question_messages": []any{map[string]any{"role": "system", "content": "operators say so"},
			map[string]any{"role": "user", "content": "of the long one"}}})
	p.Must(t, http.StatusCreated, http.MethodPost, stack.SessionPath("long")+"/turns", map[string]any{
		"request_id": "r2", "question_neutral": "not answered"})
	p.LinkIdentity(t, odd, "ada")
	p.LinkIdentity(t, "bobs", "bob")
	p.Must(t, http.StatusConflict, http.MethodPut, stack.SessionPath(odd)+"/identity",
		map[string]any{"identity_id": "bob"})
	p.Must(t, http.StatusOK, http.MethodPatch, stack.SessionPath(odd), map[string]any{"title": "A # title",
		"metadata": map[string]any{"k": "v"}})
	turns := p.Get(t, stack.SessionPath(odd)+"/turns")["turns"].([]any)
	id := func(n int) string { return turns[n].(map[string]any)["turn_id"].(string) }
	p.Must(t, http.StatusCreated, http.MethodPost, stack.SessionPath(odd)+"/fork", map[string]any{"request_id": "f",
		"turn_id": id(5), "session_id": "Branch"})
	p.RecordTurn(t, "Branch", "r50", "question 50", "answer 50")
	p.Must(t, http.StatusCreated, http.MethodPost, stack.SessionPath(odd)+"/summaries", map[string]any{
		"request_id": "s", "through_turn_id": id(7), "summary_neutral": "in short"})
	p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath(odd)+"/turns/"+id(11)+"/correct", map[string]any{
		"request_id": "c", "answer_neutral": "corrected"})

	f := exported(t, p, "ada")
	require.ElementsMatch(t, listed(t, p, "ada"), f.turns(t))
	require.Len(t, f.turns(t), 15)
	var manifest struct {
		Sessions, Turns, Receipts int
		Attempts                  int `json:"link_attempts"`
		Position                  string
		Files                     map[string]string
	}
	f.read(t, "manifest.json", &manifest)
	require.Equal(t, []int{3, 15, 0, 1}, []int{manifest.Sessions, manifest.Turns, manifest.Receipts, manifest.Attempts})
	require.Equal(t, map[string]string{"..%2Fodd%20id": odd, "long": "long", "Branch": "Branch"}, manifest.Files)
	require.NotEmpty(t, manifest.Position)
	require.Len(t, f, 2*3+5)
	text := f["sessions/..%2Fodd%20id.md"]
	for _, has := range []string{"# A # title\n", "> question 3\n", "> corrected\n", "Summary:\n\n> in short\n"} {
		require.Contains(t, text, has)
	}
	require.Contains(t, f["sessions/Branch.md"], "A branch of ../odd id")
	require.Contains(t, f["sessions/Branch.md"], "> question 5\n")
	require.Contains(t, f["sessions/long.json"], "of the long one")
	require.NotContains(t, f.all(), "operators say so")
	require.NotContains(t, f.all(), "bob")

	done, gone := make(chan struct{}), make(chan string, 12)
	go func() {
		defer close(done)
		for n := range 8 {
			at := stack.SessionPath(odd) + "/turns/" + id(n) + "/redact"
			status, _, err := p.Call(t.Context(), http.MethodPost, at, nil)
			if err == nil && status == http.StatusOK {
				gone <- id(n)
			}
		}
	}()
	var withdrawn []string
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		for len(gone) > 0 {
			withdrawn = append(withdrawn, <-gone)
		}
		now := exported(t, p, "ada").turns(t)
		for _, id := range withdrawn {
			require.NotContains(t, now, id)
		}
	}
	f = exported(t, p, "ada")
	require.ElementsMatch(t, listed(t, p, "ada"), f.turns(t))
	require.Len(t, f.turns(t), 7)
	require.NotContains(t, f.all(), "in short", "the summary is void")
	f.read(t, "manifest.json", &manifest)
	require.Equal(t, 8, manifest.Receipts)

	p.Must(t, http.StatusAccepted, http.MethodDelete, "/v1/identities/ada", nil)
	f = exported(t, p, "ada")
	require.Empty(t, f.turns(t))
	f.read(t, "manifest.json", &manifest)
	require.Equal(t, []int{0, 0}, []int{manifest.Sessions, manifest.Turns})
	require.NotZero(t, manifest.Receipts)
	require.Len(t, f, 5)
	for _, lost := range []string{"question ", "title", "of the long one"} {
		require.NotContains(t, f["link-attempts.json"]+f["receipts.json"]+f["memory.json"], lost)
	}
	require.Contains(t, p.Fails(t, "export", "--identity", "ada", "--folder", t.TempDir()), "exists")
	code, _, _ := p.Run(t, "export", "--identity", "ada", "--folder", "x", "-o", "y")
	require.Equal(t, stack.ExitUsage, code)
}
