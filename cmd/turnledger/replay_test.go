package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/services/export"
)

// verb runs a verb of the binary against the process and gives what it prints.
func (p *process) verb(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := p.verbCommand(t, args...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
	}
	return out.String(), said.String(), cmd.ProcessState.ExitCode()
}

func (p *process) verbCommand(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	path, err := binary()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "TURNLEDGER_URL="+p.url)
	return cmd
}

func linesOf(s string) []string {
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}

func TestReplayInEveryFormat(t *testing.T) {
	t.Parallel()
	// Without an eraser, which takes the redacted events out of the log.
	p := start(t, []string{"TURNLEDGER_PARTITIONS=2"}, "serve", "--roles", "api,context", "--data-dir", dataDir(t))
	gone := p.turn(t, "s0", "r", "SECRET", "SECRET")
	for k := range 6 {
		p.turn(t, fmt.Sprint("s", k), "r1", "question", "answer")
	}
	p.must(t, http.StatusOK, http.MethodPost, session("s0")+"/turns/"+gone+"/redact", nil)
	dir := t.TempDir()

	out, said, code := p.verb(t, "replay")
	require.Zero(t, code, said)
	require.Len(t, linesOf(out), 15)
	require.NotContains(t, out, "SECRET")
	for _, l := range linesOf(out) {
		require.True(t, json.Valid([]byte(l)), l)
	}
	position := strings.TrimSpace(strings.TrimPrefix(said, "position "))
	require.Regexp(t, `^0:\d+,1:\d+$`, position)
	p.turn(t, "s0", "r2", "question", "answer")
	out, _, _ = p.verb(t, "replay", "--from", position)
	require.Len(t, linesOf(out), 2)

	name := filepath.Join(dir, "events.parquet")
	_, said, code = p.verb(t, "replay", "--format", "parquet", "-o", name, "--to", position)
	require.Zero(t, code, said)
	rows, err := parquet.ReadFile[export.EventRow](name)
	require.NoError(t, err)
	require.Len(t, rows, 15)
	redactions := 0
	for _, r := range rows {
		require.NotContains(t, r.Data, "SECRET")
		if r.Redacted {
			redactions++
		}
	}
	require.Equal(t, 2, redactions)

	name = filepath.Join(dir, "turns.parquet")
	_, said, code = p.verb(t, "replay", "--turns", "--format", "parquet", "-o", name)
	require.Zero(t, code, said)
	turns, err := parquet.ReadFile[export.TurnRow](name)
	require.NoError(t, err)
	statuses := map[string]int{}
	for _, r := range turns {
		statuses[r.Status]++
	}
	require.Equal(t, map[string]int{"finalized": 7, "redacted": 1}, statuses)

	out, _, _ = p.verb(t, "replay", "--session", "s1", "--format", "csv")
	records, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	require.NoError(t, err)
	require.Len(t, records, 3)
	left, err := filepath.Glob(filepath.Join(dir, "*"+partSuffix))
	require.NoError(t, err)
	require.Empty(t, left)

	for _, args := range [][]string{{"--turns", "--follow"}, {"--follow", "--format", "parquet"}, {"--since", "yesterday"}, {"--session", ""}, {"--identity="}, {"-o", dir}} {
		_, _, code = p.verb(t, append([]string{"replay"}, args...)...)
		require.Equal(t, exitUsage, code, args)
	}
	_, said, code = p.verb(t, "replay", "--type", "nothing")
	require.Equal(t, exitUsage, code)
	require.Contains(t, said, "turnledger.turn.started.v1")
}

// A follower outlives the server, misses nothing and gives nothing twice; Ctrl-C is its
// end.
func TestReplayFollowsOverARestart(t *testing.T) {
	t.Parallel()
	dir, address := dataDir(t), freeAddress(t)
	env := []string{"TURNLEDGER_NATS_LISTEN=" + freeAddress(t)}
	p := launchAt(t, address, env, "serve", "--data-dir", dir)
	p.waitReady(t)
	file := filepath.Join(t.TempDir(), "log.jsonl")
	p.turn(t, "s", "r0", "q", "a")
	cmd := p.verbCommand(t, "replay", "--follow", "-o", file)
	var said syncBuffer
	cmd.Stderr = &said
	require.NoError(t, cmd.Start())
	written := func() int {
		raw, _ := os.ReadFile(file)
		return bytes.Count(raw, []byte("\n"))
	}
	require.Eventually(t, func() bool { return written() == 2 }, 20*time.Second, 10*time.Millisecond)
	p.stop(t)
	p = launchAt(t, address, env, "serve", "--data-dir", dir)
	p.waitReady(t)
	for k := range 3 {
		p.turn(t, "s", fmt.Sprint("after", k), "q", "a")
	}
	require.Eventually(t, func() bool { return written() == 8 }, 30*time.Second, 10*time.Millisecond, "%s", &said)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.NoError(t, cmd.Wait(), "%s", &said)
	require.Equal(t, "position 0:8\n", said.String())
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	for i, l := range linesOf(string(raw)) {
		require.Contains(t, l, fmt.Sprintf(`"position":"0:%d"`, i+1))
	}
}

// Ctrl-C in the middle leaves what was written under its temporary name, readable, and
// says where to go on.
func TestReplayThatIsStoppedSaysWhereToGoOn(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Turnledger-From", "0:0")
		w.Header().Set("Turnledger-End", "0:9")
		_, _ = fmt.Fprintln(w, `{"specversion":"1.0","id":"a.started","source":"x","type":"t","subject":"s","position":"0:4","recordedat":"2026-11-21T08:00:00Z","data":{}}`)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	for _, format := range []string{"jsonl", "parquet"} {
		ctx, stop := context.WithCancel(t.Context())
		file := filepath.Join(t.TempDir(), "out")
		var out bytes.Buffer
		var said syncBuffer
		code := make(chan int, 1)
		go func() {
			code <- run(ctx, []string{"replay", "--url", server.URL, "--format", format, "-o", file}, &out, &said)
		}()
		require.Eventually(t, func() bool {
			_, err := os.Stat(file + partSuffix)
			return err == nil
		}, 10*time.Second, time.Millisecond)
		// The event is on its way by then, or not; both are told right.
		stop()
		require.Equal(t, exitFailed, <-code)
		require.NoFileExists(t, file)
		rows := 0
		if strings.Contains(said.String(), "position 0:4\n") {
			rows = 1
			require.Contains(t, said.String(), file+partSuffix+"; for the rest, the same with --from 0:4")
		}
		if format == "parquet" {
			got, err := parquet.ReadFile[export.EventRow](file + partSuffix)
			require.NoError(t, err)
			require.Len(t, got, rows)
		} else {
			raw, err := os.ReadFile(file + partSuffix)
			require.NoError(t, err)
			require.Equal(t, rows, strings.Count(string(raw), "\n"))
		}
	}
}

func TestExplainATurn(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "serve", "--data-dir", dataDir(t))
	gone := p.turn(t, "s", "gone", "SECRET", "SECRET")
	var earlier []string
	for k := range 4 {
		earlier = append(earlier, p.turn(t, "s", fmt.Sprint(k), fmt.Sprint("question ", k), fmt.Sprint("answer ", k)))
	}
	turn := p.turn(t, "s", "this", "WHY", "BECAUSE")
	p.turn(t, "s", "later", "later", "later")
	p.must(t, http.StatusOK, http.MethodPost, session("s")+"/turns/"+gone+"/redact", nil)

	out, said, code := p.verb(t, "explain", "s", turn, "--max-messages", "4", "--json")
	require.Zero(t, code, said)
	var x explanation
	require.NoError(t, json.Unmarshal([]byte(out), &x))
	require.Equal(t, "0:11", x.AsOf)
	require.Len(t, x.Events, 2)
	require.Equal(t, []int{4, 2, 2}, []int{x.Context.HistoryMessages, x.Context.HistoryTurns, x.Context.DroppedTurns})
	require.Equal(t, []explainedTurn{
		{gone, "0:1", seenRedacted}, {earlier[0], "0:3", seenWindow}, {earlier[1], "0:5", seenWindow}, {earlier[2], "0:7", seenShown}, {earlier[3], "0:9", seenShown},
	}, x.Turns)
	out, _, _ = p.verb(t, "explain", "s", turn)
	require.NotContains(t, out, "question 3")
	require.NotContains(t, out, "WHY")
	out, _, _ = p.verb(t, "explain", "s", turn, "--text")
	require.Contains(t, out, "user: question 3\nassistant: answer 3\nuser: WHY\n")
	require.NotContains(t, out, "SECRET")
	_, said, code = p.verb(t, "explain", "s", "00000000-0000-0000-0000-000000000001")
	require.Equal(t, exitFailed, code)
	require.Contains(t, said, "no such turn")
	_, _, code = p.verb(t, "explain", "s", "x")
	require.Equal(t, exitUsage, code)
}

// A correction was asked nothing: what its turn's prompt could see is told, and the turn's own versions are not
// turns before it.
func TestExplainACorrectedTurn(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "serve", "--data-dir", dataDir(t))
	first := p.turn(t, "s", "1", "question 1", "answer 1")
	wrong := p.turn(t, "s", "2", "question 2", "wrong")
	corrected := p.must(t, http.StatusOK, http.MethodPost, session("s")+"/turns/"+wrong+"/correct",
		map[string]any{"request_id": "2b", "question_neutral": "question 2", "answer_neutral": "right"})["turn_id"].(string)
	p.turn(t, "s", "3", "about "+corrected, "answer 3")
	p.turn(t, "s", "4", "question 4", "answer 4")
	for _, version := range []string{wrong, corrected} {
		out, said, code := p.verb(t, "explain", "s", version, "--json")
		require.Zero(t, code, said)
		var x explanation
		require.NoError(t, json.Unmarshal([]byte(out), &x))
		require.Equal(t, "0:3", x.AsOf)
		require.Len(t, x.Events, 3)
		require.Equal(t, []explainedTurn{{first, "0:1", seenShown}}, x.Turns)
		require.Equal(t, []int{2, 1, 0}, []int{x.Context.HistoryMessages, x.Context.HistoryTurns, x.Context.DroppedTurns})
	}
}

// TestReplayIntoAPipeLeavesAPipe, and so /dev/null where it is: root once lost it.
func TestReplayIntoAPipeLeavesAPipe(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "serve", "--data-dir", dataDir(t), "--roles", "api,context,recent")
	p.turn(t, "s", "r1", "a question", "an answer")
	name := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(name, 0o600))
	pipe, err := os.OpenFile(name, os.O_RDWR, 0) // a reader that does not wait for a writer
	require.NoError(t, err)
	t.Cleanup(func() { _ = pipe.Close() })
	_, said, code := p.verb(t, "replay", "-o", name)
	require.Equal(t, 0, code, said)
	info, err := os.Lstat(name)
	require.NoError(t, err)
	require.Equal(t, os.ModeNamedPipe, info.Mode().Type())
	line, err := bufio.NewReader(pipe).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "turnledger.turn.started.v1")
}

// What could not be written is no place to go on after.
func TestReplayThatCannotBeWrittenNamesNoPosition(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "serve", "--data-dir", dataDir(t))
	for k := range 20 {
		p.turn(t, "s", fmt.Sprint(k), strings.Repeat("long ", 100), "answer")
	}
	path, err := binary()
	require.NoError(t, err)
	to := filepath.Join(t.TempDir(), "log.csv")
	for _, line := range []string{
		path + " replay --url " + p.url + " >/dev/full",
		"ulimit -f 2; trap '' XFSZ; " + path + " replay --url " + p.url + " --format csv -o " + to,
	} {
		cmd := exec.Command("sh", "-c", line)
		var said bytes.Buffer
		cmd.Stderr = &said
		var status *exec.ExitError
		require.ErrorAs(t, cmd.Run(), &status, line)
		require.Equal(t, exitFailed, status.ExitCode())
		require.NotContains(t, said.String(), "position")
		require.NotContains(t, said.String(), "no server answers")
	}
	require.NoFileExists(t, to)
	out, _, code := p.verb(t, "replay", "--format", "csv", "-o", to)
	require.Zero(t, code, out)
}

// What a client may send, and the log keeps as it was, is read by every format.
func TestReplayOfHalfASurrogatePair(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "serve", "--data-dir", dataDir(t))
	status, out, err := p.call(t.Context(), http.MethodPost, session("s")+"/turns",
		json.RawMessage(`{"request_id":"1","question_neutral":"ok","question_messages":[{"role":"user","content":"ok","x":"\ud800"}],"metadata":{"locale":"\ud800"}}`))
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status, out)
	id := out["turn_id"].(string)
	for _, args := range [][]string{{"--format", "csv"}, {"--format", "parquet"}, {"--format", "jsonl", "--turns"}, {"--format", "parquet", "--turns"}} {
		_, said, code := p.verb(t, append([]string{"replay", "-o", filepath.Join(t.TempDir(), "log")}, args...)...)
		require.Zero(t, code, "%v: %s", args, said)
	}
	_, said, code := p.verb(t, "explain", "s", id)
	require.Zero(t, code, said)
}

// CONTRACT §2 as_of: what would have been sent then, the position inclusive, and
// today's redactions applied.
func TestContextAsOf(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "serve", "--data-dir", dataDir(t))
	first := p.turn(t, "s", "1", "question 1", "answer 1")
	p.turn(t, "s", "2", "question 2", "answer 2")
	between := time.Now().UTC().Format(time.RFC3339Nano)
	p.turn(t, "s", "3", "question 3", "answer 3")
	for asOf, want := range map[string]string{
		"0:1": "", "0:2": "1", "0:3": "1", "0:4": "12", between: "12", "0:6": "123",
	} {
		out, said, code := p.verb(t, "context", "s", "now", "--as-of", asOf)
		require.Zero(t, code, said)
		wanted := ""
		for _, k := range want {
			wanted += fmt.Sprintf("user: question %c\nassistant: answer %c\n", k, k)
		}
		require.Equal(t, wanted+"user: now\n", out, asOf)
	}
	p.must(t, http.StatusOK, http.MethodPost, session("s")+"/turns/"+first+"/redact", nil)
	out, _, _ := p.verb(t, "context", "s", "now", "--as-of", "0:4")
	require.Equal(t, "user: question 2\nassistant: answer 2\nuser: now\n", out)
	_, said, code := p.verb(t, "context", "s", "now", "--as-of", "0:99")
	require.Equal(t, exitFailed, code)
	require.Contains(t, said, "position_not_reached")
}
