package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// importLines imports conversations, each an id and the JSON of its messages.
func (p *process) importLines(t testing.TB, conversations ...[2]string) (code int, out, errs string) {
	t.Helper()
	var text strings.Builder
	for _, c := range conversations {
		fmt.Fprintf(&text, `{"conversation_id":%q,"messages":[%s]}`+"\n", c[0], c[1])
	}
	file := filepath.Join(t.TempDir(), "c.jsonl")
	require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o600))
	return turnledger(t, p, "import", file)
}

// A conversation that has changed since it was imported is reported, and what stands in
// the log stays; one that only goes on is imported further.
func TestAChangedConversationIsReported(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "serve", "--data-dir", dataDir(t))
	const (
		a, b     = `{"role":"user","content":"A"}`, `{"role":"assistant","content":"B"}`
		more     = `{"role":"assistant","content":"more"}`
		next     = `{"role":"user","content":"next"}`
		calls    = `{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`
		odd      = `{"role":"user","content":"","translated":"bonjour"}`
		huge     = `{"role":"user","content":"A","x":1e400}`
		othercal = `{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"g","arguments":"{}"}}]}`
	)
	code, _, errs := p.importLines(t, [2]string{"goes-on", a + "," + b}, [2]string{"asked", a}, [2]string{"longer", a + "," + b}, [2]string{"calls", a + "," + calls}, [2]string{"odd", odd + "," + b}, [2]string{"huge", huge + "," + b})
	require.Equal(t, exitDone, code, errs)
	code, out, errs := p.importLines(t,
		[2]string{"goes-on", a + "," + b + "," + next}, [2]string{"asked", a + `,{"role":"user","content":"and"},` + b},
		[2]string{"longer", a + "," + b + "," + more + "," + next}, [2]string{"calls", a + "," + othercal}, [2]string{"odd", odd + "," + b + "," + next}, [2]string{"huge", huge + "," + b + "," + next})
	require.Equal(t, exitFailed, code)
	require.Contains(t, out, "3 turns recorded")
	for line, half := range map[int]string{2: "question", 3: "answer", 4: "answer"} {
		require.Regexp(t, fmt.Sprintf(`c\.jsonl:%d: turn 1: the log holds this turn with another %s`, line, half), errs)
	}
	require.NotContains(t, errs, "c.jsonl:1:")
	require.NotRegexp(t, `c\.jsonl:[56]:`, errs)
	asked := p.must(t, http.StatusOK, http.MethodGet, session("odd")+"/turns", nil)["turns"].([]any)[0].(map[string]any)
	require.Equal(t, "bonjour", asked["question_translated"])
	require.Len(t, p.context(t, "goes-on"), 3)
	require.Len(t, p.context(t, "asked"), 1)
	require.Len(t, p.context(t, "longer"), 2)
}

// A turn that was redacted since stays away, and is no fault of the file.
func TestARedactedTurnStaysAwayFromAnImport(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "serve", "--data-dir", dataDir(t))
	line := [2]string{"s", `{"role":"user","content":"A"},{"role":"assistant","content":"B"}`}
	code, _, errs := p.importLines(t, line)
	require.Equal(t, exitDone, code, errs)
	page := p.must(t, http.StatusOK, http.MethodGet, session("s")+"/turns", nil)
	id := page["turns"].([]any)[0].(map[string]any)["turn_id"].(string)
	p.must(t, http.StatusOK, http.MethodPost, session("s")+"/turns/"+id+"/redact", map[string]any{})
	code, out, errs := p.importLines(t, line)
	require.Equal(t, exitDone, code, errs)
	require.Contains(t, out, "0 turns recorded, 1 were there already")
	require.Empty(t, p.context(t, "s"))
}

// Contents that are lists of parts have their text, half a surrogate pair comes back as
// it was written, and an image that is larger than a request becomes its text.
func TestImportOfPartsAndImages(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "serve", "--data-dir", dataDir(t))
	photo := "data:image/png;base64," + base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\n"+strings.Repeat("photo", 300_000)))
	parts := `{"role":"user","content":[{"type":"text","text":"Plain text"},{"type":"text","text":"in parts"}]},{"role":"assistant","content":[{"type":"text","text":"ok"}]}`
	lone := `{"role":"user","content":"half \ud83d emoji"},{"role":"assistant","content":"yes"}`
	image := `{"role":"user","content":[{"type":"text","text":"what is this"},{"type":"image_url","image_url":{"url":"` + photo + `"}}]},{"role":"assistant","content":"a cat"}`
	code, _, errs := p.importLines(t, [2]string{"parts", parts}, [2]string{"lone", lone}, [2]string{"image", image})
	require.Equal(t, exitDone, code, errs)
	history := p.must(t, http.StatusOK, http.MethodGet, session("parts")+"/history", nil)["history"].([]any)
	require.Equal(t, []any{map[string]any{"question_neutral": "Plain text\nin parts", "answer_neutral": "ok"}}, history)
	resp, err := http.Post(p.url+session("lone")+"/context", "application/json", strings.NewReader(`{"message":"now"}`))
	require.NoError(t, err)
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Contains(t, string(raw), `half \ud83d emoji`)
	got := p.context(t, "image")
	require.Len(t, got, 2)
	require.Equal(t, []any{map[string]any{"type": "text", "text": "what is this"}, map[string]any{"type": "text", "text": "[Image sent: photo]"}}, got[0].(map[string]any)["content"])
}

// An import goes on when the server is back.
func TestAnImportOutlastsARestart(t *testing.T) {
	t.Parallel()
	dir, address := dataDir(t), freeAddress(t)
	p := launchAt(t, address, nil, "serve", "--data-dir", dir)
	p.waitReady(t)
	file := madeConversations(t, rand.New(rand.NewPCG(4, 4)), 0)
	rec := p.recorder(t)
	acknowledged := newAcks()
	done := make(chan int64, 1)
	im := &importer{rec: noting{rec, acknowledged}, seen: map[string][32]byte{}, report: &strings.Builder{}, bar: newProgress(&strings.Builder{}, "importing", unitBytes, 1)}
	go func() {
		_ = im.files(context.WithoutCancel(t.Context()), []string{file}, 4)
		done <- im.bad.Load()
	}()
	require.Eventually(t, func() bool { return acknowledged.len() > madeTurns/4 }, time.Minute, time.Millisecond)
	p.kill(t)
	p = launchAt(t, address, nil, "serve", "--data-dir", dir)
	p.waitReady(t)
	require.Zero(t, <-done)
	for _, c := range readConversations(t, []string{file}) {
		require.Equal(t, c.Messages, p.context(t, c.ID))
	}
}

// fullDisk takes nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// What could not be printed was not done.
func TestLostOutputIsAFailure(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "serve", "--data-dir", dataDir(t))
	p.turn(t, "s", "r", "question", "answer")
	for _, args := range [][]string{{"history", "s"}, {"context", "s", "m"}, {"projections", "list"}, {"version"}} {
		var errs strings.Builder
		if args[0] != "version" {
			args = append(args, "--url", p.url)
		}
		require.Equal(t, exitFailed, run(t.Context(), args, fullDisk{}, &errs), args)
		require.Contains(t, errs.String(), "no space left on device")
	}
}
