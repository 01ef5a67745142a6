package systemtest_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
)

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
	resp, err := http.Post(p.URL+stack.SessionPath("lone")+"/context", "application/json",
		strings.NewReader(`{"message":"now"}`))
	require.NoError(t, err)
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
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
	head, err := events.ParsePosition(list[0].(map[string]any)["head"].(string))
	require.NoError(t, err)
	return head.Seq
}
