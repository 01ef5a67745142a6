package systemtest_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/printed"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/services/export"
)

func linesOf(s string) []string { return strings.Split(strings.TrimSuffix(s, "\n"), "\n") }

//conformance:h67
func TestReplayInEveryFormat(t *testing.T) {
	t.Parallel()
	// Without an eraser, which takes the redacted events out of the log.
	p := stack.Start(t, []string{"TURNLEDGER_PARTITIONS=2"}, "serve", "--roles", "api,context",
		"--data-dir", stack.DataDir(t))
	gone := p.RecordTurn(t, "s0", "r", "SECRET", "SECRET")
	for k := range 6 {
		if k != 1 {
			p.RecordTurn(t, fmt.Sprint("s", k), "r1", "question", "answer")
		}
	}
	// A client may send half a surrogate pair, and the log keeps it as it is. Every format can print it.
	half := p.Must(t, http.StatusCreated, http.MethodPost, stack.SessionPath("s1")+"/turns", json.RawMessage(
		`{"request_id":"r1","question_neutral":"ok","question_messages":[{"role":"user","content":"ok","x":"\ud800"}],`+
			`"metadata":{"locale":"\ud800"},"answer_neutral":"answer"}`))
	p.Done(t, "explain", "s1", half["turn_id"].(string))
	p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("s0")+"/turns/"+gone+"/redact", nil)
	dir := t.TempDir()

	code, out, said := p.Run(t, "replay")
	require.Zero(t, code, said)
	require.Len(t, linesOf(out), 14)
	require.NotContains(t, out, "SECRET")
	for _, l := range linesOf(out) {
		require.True(t, json.Valid([]byte(l)), l)
	}
	position := strings.TrimSpace(strings.TrimPrefix(said, "position "))
	require.Regexp(t, `^0:\d+,1:\d+$`, position)
	p.RecordTurn(t, "s0", "r2", "question", "answer")
	_, out, _ = p.Run(t, "replay", "--from", position)
	require.Len(t, linesOf(out), 2)

	name := filepath.Join(dir, "events.parquet")
	p.Done(t, "replay", "--format", "parquet", "-o", name, "--to", position)
	rows := must.Get(parquet.ReadFile[export.EventRow](name))(t)
	require.Len(t, rows, 14)
	redactions := 0
	for _, r := range rows {
		require.NotContains(t, r.Data, "SECRET")
		if r.Redacted {
			redactions++
		}
	}
	require.Equal(t, 2, redactions)

	name = filepath.Join(dir, "turns.parquet")
	p.Done(t, "replay", "--turns", "--format", "parquet", "-o", name)
	turns := must.Get(parquet.ReadFile[export.TurnRow](name))(t)
	statuses := map[string]int{}
	for _, r := range turns {
		statuses[r.Status]++
	}
	require.Equal(t, map[string]int{"finalized": 7, "redacted": 1}, statuses)

	_, out, _ = p.Run(t, "replay", "--session", "s1", "--format", "csv")
	require.Len(t, must.Get(csv.NewReader(strings.NewReader(out)).ReadAll())(t), 2, "the header and a whole turn")
	require.Empty(t, must.Get(filepath.Glob(filepath.Join(dir, "*"+partSuffix)))(t))

}

// `replay --follow` goes on when the server is restarted, misses no event and prints none twice. Ctrl-C ends it.
func TestReplayFollowsOverARestart(t *testing.T) {
	t.Parallel()
	dir, address := stack.DataDir(t), stack.FreeAddress(t)
	env := []string{"TURNLEDGER_NATS_LISTEN=" + stack.FreeAddress(t)}
	p := stack.LaunchAt(t, address, env, "serve", "--data-dir", dir)
	p.WaitReady(t)
	file := filepath.Join(t.TempDir(), "log.jsonl")
	p.RecordTurn(t, "s", "r0", "q", "a")
	cmd := p.Command(t, "replay", "--follow", "-o", file)
	var said printed.Buffer
	cmd.Stderr = &said
	require.NoError(t, cmd.Start())
	written := func() int {
		raw, _ := os.ReadFile(file)
		return bytes.Count(raw, []byte("\n"))
	}
	hang.Until(t, func() bool { return written() == 2 })
	p.Stop(t)
	p = stack.LaunchAt(t, address, env, "serve", "--data-dir", dir)
	p.WaitReady(t)
	for k := range 3 {
		p.RecordTurn(t, "s", fmt.Sprint("after", k), "q", "a")
	}
	hang.Until(t, func() bool { return written() == 8 }, "%s", &said)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.NoError(t, cmd.Wait(), "%s", &said)
	require.Equal(t, "position 0:8\n", said.String())
	raw := must.Get(os.ReadFile(file))(t)
	for i, l := range linesOf(string(raw)) {
		require.Contains(t, l, fmt.Sprintf(`"position":"0:%d"`, i+1))
	}
}

// partSuffix is that of a file which is not whole yet.
const partSuffix = ".part"

// Ctrl-C in the middle of a replay leaves a readable file under its temporary name, and the replay says where to go on.
func TestReplayThatIsStoppedSaysWhereToGoOn(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Turnledger-From", "0:0")
		w.Header().Set("Turnledger-End", "0:9")
		_, _ = fmt.Fprintln(w,
			`{"specversion":"1.0","id":"a.started","source":"x","type":"t","subject":"s",`+
				`"position":"0:4","recordedat":"2026-11-21T08:00:00Z","data":{}}`)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	for _, format := range []string{"jsonl", "parquet"} {
		file := filepath.Join(t.TempDir(), "out")
		var said printed.Buffer
		cmd := exec.Command(stack.Binary(t), "replay", "--url", server.URL, "--format", format, "-o", file)
		cmd.Stderr = &said
		require.NoError(t, cmd.Start())
		hang.Until(t, func() bool {
			_, err := os.Stat(file + partSuffix)
			return err == nil
		})
		// The event may have been printed by then or not; the position that is printed fits either.
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		require.Error(t, cmd.Wait())
		require.Equal(t, stack.ExitFailed, cmd.ProcessState.ExitCode())
		require.NoFileExists(t, file)
		rows := 0
		if strings.Contains(said.String(), "position 0:4\n") {
			rows = 1
			require.Contains(t, said.String(), file+partSuffix+"; for the rest, the same with --from 0:4")
		}
		if format == "parquet" {
			require.Len(t, must.Get(parquet.ReadFile[export.EventRow](file+partSuffix))(t), rows)
		} else {
			raw := must.Get(os.ReadFile(file + partSuffix))(t)
			require.Equal(t, rows, strings.Count(string(raw), "\n"))
		}
	}
}

// `replay -o` into a pipe writes to the pipe and does not replace it by a file. (/dev/null was lost like that once.)
func TestReplayIntoAPipeLeavesAPipe(t *testing.T) {
	t.Parallel()
	p := stack.Shared(t)
	p.RecordTurn(t, "piped", "r1", "a question", "an answer")
	name := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(name, 0o600))
	pipe, err := os.OpenFile(name, os.O_RDWR, 0) // a reader that does not wait for a writer
	require.NoError(t, err)
	t.Cleanup(func() { _ = pipe.Close() })
	code, _, said := p.Run(t, "replay", "--session", "piped", "-o", name)
	require.Equal(t, 0, code, said)
	info := must.Get(os.Lstat(name))(t)
	require.Equal(t, os.ModeNamedPipe, info.Mode().Type())
	require.Contains(t, must.Get(bufio.NewReader(pipe).ReadString('\n'))(t), "turnledger.turn.started.v1")
}

// A replay whose output can't be written prints no position: the events up to it are lost.
func TestReplayThatCannotBeWrittenNamesNoPosition(t *testing.T) {
	t.Parallel()
	p := stack.Shared(t)
	for k := range 20 {
		p.RecordTurn(t, "unwritten", fmt.Sprint(k), strings.Repeat("long ", 100), "answer")
	}
	path := stack.Binary(t)
	to := filepath.Join(t.TempDir(), "log.csv")
	for _, line := range []string{
		path + " replay --url " + p.URL + " >/dev/full",
		"ulimit -f 2; trap '' XFSZ; " + path + " replay --url " + p.URL + " --format csv -o " + to,
	} {
		cmd := exec.Command("sh", "-c", line)
		var said bytes.Buffer
		cmd.Stderr = &said
		var status *exec.ExitError
		require.ErrorAs(t, cmd.Run(), &status, line)
		require.Equal(t, stack.ExitFailed, status.ExitCode())
		must.Lack(t, said.String(), "position", "no server answers")
	}
	require.NoFileExists(t, to)
	p.Done(t, "replay", "--format", "csv", "-o", to)
}

// The answers that docs/analysts.md shows for its SQL are those that a plain Parquet reader computes, after the same
// commands.
//
//conformance:h67 s25
func TestAnswersOfTheAnalystsPage(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile("../../../docs/analysts.md"))(t)
	files := must.Get(filepath.Glob("../../../docs/examples/*.jsonl"))(t)
	// Without an eraser, which takes the redacted events out of the log.
	p := stack.Start(t, nil, "serve", "--roles", "api,context", "--data-dir", stack.DataDir(t))
	dir := t.TempDir()
	eventsFile, turnsFile := filepath.Join(dir, "events.parquet"), filepath.Join(dir, "turns.parquet")
	run := func(args ...string) string {
		return p.Done(t, args...)
	}
	run(append([]string{"import"}, files...)...)
	run("link", "example-follow-up", "ada")
	out := p.Get(t, stack.SessionPath("example-dripping-tap")+"/turns")
	first := out["turns"].([]any)[0].(map[string]any)["turn_id"].(string)
	run("redact", "--yes", "example-dripping-tap", first)
	run("replay", "--format", "parquet", "-o", eventsFile)
	run("replay", "--turns", "--format", "parquet", "-o", turnsFile)
	require.Contains(t, string(page), run("whatif", "--sessions", "example-follow-up", "--max-messages", "2"))

	events := must.Get(parquet.ReadFile[export.EventRow](eventsFile))(t)
	types, hidden := map[string]int{}, map[string]int{}
	for _, e := range events {
		types[e.Type]++
		if e.Redacted {
			hidden[e.Type]++
		}
	}
	var rows [][]string
	for _, typ := range slices.SortedFunc(maps.Keys(types),
		func(a, b string) int { return cmp.Or(types[b]-types[a], cmp.Compare(a, b)) }) {
		rows = append(rows, []string{typ, fmt.Sprint(types[typ]), fmt.Sprint(hidden[typ])})
	}
	requireShown(t, page, []string{"type", "events", "redacted"}, rows)

	turns := must.Get(parquet.ReadFile[export.TurnRow](turnsFile))(t)
	statuses := map[string]int{}
	var asked [][]string
	for _, r := range turns {
		statuses[r.Status]++
		if r.SessionID == "example-follow-up" {
			asked = append(asked, []string{*r.IdentityID, *r.QuestionNeutral, fmt.Sprint(len(*r.AnswerNeutral))})
		}
	}
	rows = nil
	for _, s := range slices.Sorted(maps.Keys(statuses)) {
		rows = append(rows, []string{s, fmt.Sprint(statuses[s])})
	}
	requireShown(t, page, []string{"status", "turns"}, rows)
	requireShown(t, page, []string{"identity_id", "question_neutral", "answer_bytes"}, asked)
}

// requireShown requires that a page shows a table.
func requireShown(t *testing.T, page []byte, columns []string, rows [][]string) {
	t.Helper()
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	for _, r := range append([][]string{columns}, rows...) {
		_, _ = fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	require.NoError(t, w.Flush())
	require.Contains(t, string(page), table.String())
}
