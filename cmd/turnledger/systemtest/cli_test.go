package systemtest_test

import (
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/services/client"
)

// TestAStartThatCannotWorkSaysWhatToDo goes through what can be wrong when the log and
// the views are opened.
//
//conformance:h25
func TestAStartThatCannotWorkSaysWhatToDo(t *testing.T) {
	t.Parallel()
	taken := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = taken.Close() })
	other := noNATS(t)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"taken API port": {[]string{"--listen", taken.Addr().String()}, stack.ExitFailed,
			"set TURNLEDGER_LISTEN"},
		"taken NATS port": {[]string{"--nats-listen", taken.Addr().String()}, stack.ExitUsage, "NATS_LISTEN"},
		"no PostgreSQL URL": {[]string{"--postgres-url", "host=x passwd hidden"}, stack.ExitFailed,
			"PostgreSQL URL"},
		"no Redis URL": {[]string{"--redis-url", "redis:/x:hidden@h"}, stack.ExitFailed, "Redis URL"},
		"no NATS there": {[]string{"--nats-url", "nats://u:hidden@" + other}, stack.ExitFailed,
			"is it running"},
		"NATS token": {[]string{"--nats-url", "nats://hidden@" + other}, stack.ExitFailed,
			"is it running"},
		"data in a file": {[]string{"--data-dir", file}, stack.ExitFailed, "not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"serve", "--listen", "127.0.0.1:0",
				"--data-dir", filepath.Join(t.TempDir(), "data")}, c.args...)
			code, _, errs := stack.Run(t, args...)
			require.Equal(t, c.code, code, errs)
			require.Contains(t, errs, c.says)
			require.NotContains(t, errs, "hidden")
		})
	}
}

// noNATS returns the address of a server of another kind. A start would wait for a NATS that does not answer.
func noNATS(t *testing.T) string {
	t.Helper()
	other := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = other.Close() })
	go func() {
		for {
			caller, err := other.Accept()
			if err != nil {
				return
			}
			_, _ = caller.Write([]byte("SSH-2.0-other\r\n"))
			_ = caller.Close()
		}
	}()
	return other.Addr().String()
}

// A store that refuses the process's login will not change its mind: the process says so at its start, and ends.
func TestAStoreThatRefusesTheLoginEndsTheStart(t *testing.T) {
	t.Parallel()
	redis := strings.Replace(redistest.Start(t).URL(), "unix://", "unix://nobody:hidden@", 1)
	pg := must.Get(url.Parse(pg.URL(t)))(t)
	pg.User = url.UserPassword("nobody", "hidden")
	for name, c := range map[string]struct{ flag, store, roles, says string }{
		"Redis":                  {"--redis-url", redis, "api,context,recent", "WRONGPASS"},
		"Redis of a reader":      {"--redis-url", redis, "api,context", "WRONGPASS"},
		"PostgreSQL":             {"--postgres-url", pg.String(), "api,context,audit", "does not let the role"},
		"PostgreSQL of a reader": {"--postgres-url", pg.String(), "api,context", "does not let the role"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, _, errs := stack.Run(t, "serve", "--listen", "127.0.0.1:0",
				"--data-dir", filepath.Join(t.TempDir(), "data"), "--roles", c.roles, c.flag, c.store)
			require.Equal(t, stack.ExitFailed, code, errs)
			require.Contains(t, errs, c.says)
			require.NotContains(t, errs, "hidden")
		})
	}
}

// dev is a whole deployment in one process: it answers without a key, and says that it is no real model; it takes in
// threads of the Assistants API; the example for Python runs against it with the standard library alone, and prints
// what docs/openai.md shows (those for Node are run by make test-clients); and it looks after its own PostgreSQL.
//
//conformance:i36 "the echo says what it is"
//conformance:o7 o77 "threads of assistants are conversations"
//conformance:o76 "the example for Python"
func TestDev(t *testing.T) {
	t.Parallel()
	dir := stack.DataDir(t)
	p := stack.Start(t, nil, "dev", "--data-dir", dir)
	t.Run("the echo says what it is", func(t *testing.T) {
		hang.Until(t, func() bool { return strings.Contains(p.Out.String(), "an echo") })
		require.Contains(t, p.Out.String(), p.URL+"/console/", "it stands above the model")
		out := p.Must(t, http.StatusOK, http.MethodPost, "/v1/chat", stack.Content("hello"))
		require.Equal(t, "echo", out["model"])
		require.Contains(t, out["content"], "no model is configured")
		require.Contains(t, out["content"], "You said: hello")
	})
	t.Run("threads of assistants are conversations", func(t *testing.T) { importAssistants(t, p) })
	t.Run("the example for Python", func(t *testing.T) {
		python := must.Get(exec.LookPath("python3"))(t, "install python3 (make deps)")
		cmd := exec.CommandContext(t.Context(), python, "../../../docs/examples/openai/conversation.py")
		cmd.Env = []string{"OPENAI_BASE_URL=" + p.URL + "/v1", "OPENAI_API_KEY=none", "PYTHONDONTWRITEBYTECODE=1",
			"PYTHONIOENCODING=utf-8"}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		const echo = "[echo, no model is configured: set TURNLEDGER_MODEL_URL] You said: "
		require.Equal(t, []string{
			"answer: " + echo + "Which gas does it need? (2 messages before)",
			"streamed: " + echo + "And how much of it? (4 messages before)",
			"with a tool: " + echo + "1.10 a litre (8 messages before)",
			"user: My boiler is a B20.",
			"assistant: Thank you, I have noted that.",
			"user: Which gas does it need?",
			"assistant: " + echo + "Which gas does it need? (2 messages before)",
			"user: And how much of it?",
			"assistant: " + echo + "And how much of it? (4 messages before)",
			"user: Propane",
			"function_call",
			"function_call_output",
			"assistant: " + echo + "1.10 a litre (8 messages before)",
			"deleted: True",
			"then: 404",
		}, strings.Split(strings.TrimSpace(string(out)), "\n"))
	})
	t.Run("its PostgreSQL is started again", func(t *testing.T) {
		p.LinkIdentity(t, "s", "u")
		p.RecordExchange(t, "s", 0)
		p.WaitCaughtUp(t, "audit")
		raw := must.Get(os.ReadFile(filepath.Join(dir, "postgres", "cluster", "postmaster.pid")))(t)
		pid := must.Get(strconv.Atoi(strings.Fields(string(raw))[0]))(t)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		p.RecordExchange(t, "s", 1)
		p.WaitCaughtUp(t, "audit")
		require.Equal(t, stack.Questions(2), p.AuditedQuestions(t, "u"))
		p.WaitLog(t, "PostgreSQL has ended and is started again")
	})
}

func TestForkAndShowSessions(t *testing.T) {
	t.Parallel()
	p := stack.Shared(t)
	first := p.RecordTurn(t, "stem", "1", "one", "1")
	second := p.RecordTurn(t, "stem", "2", "two", "2")
	p.RecordTurn(t, "stem", "3", "three", "3")

	made := p.Done(t, "sessions", "fork", "stem", "--turn", second, "--branch", "branch", "--request-id", "f")
	must.Contain(t, made, "session      branch\n", "forked from  stem "+second+"\n")
	require.Equal(t, "Q: one\nA: 1\nQ: two\nA: 2\n", p.Done(t, "history", "branch"))
	var again client.Session
	printed := p.Done(t, "sessions", "fork", "stem", "--request-id", "f", "--json")
	require.NoError(t, json.Unmarshal([]byte(printed), &again))
	require.Equal(t, []any{"branch", true}, []any{again.SessionID, again.Duplicate})
	require.Contains(t, p.Done(t, "sessions", "fork", "stem", "--before", second, "--branch", "leaf"), "stem "+first)
	require.Contains(t, p.Done(t, "sessions", "fork", "stem", "--before", first, "--branch", "bare"), "stem -\n")
	require.Contains(t, p.Done(t, "sessions", "fork", "branch", "--branch", "twig"), "forked from  stem "+second,
		"a fork at an inherited turn is one of the turn's own session")
	shown := p.Done(t, "sessions", "show", "twig")
	must.Contain(t, shown, "forked from  stem "+second+"\n", "turns        0, 0 without an answer\n")
	require.NotContains(t, p.Done(t, "sessions", "show", "stem"), "forked from")
	require.Contains(t, p.Done(t, "sessions", "show", "nobody"), "not found")

	require.Contains(t, p.Fails(t, "sessions", "fork", "stem", "--branch", "leaf"), "session_exists")
}

func TestStreamsOfAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	p := stack.Shared(t)
	out := p.Done(t, "streams", "plan")
	require.Regexp(t, `TURNS-0 +log +file +1 `, out)
	require.Contains(t, out, "KV_TURNLEDGER")
	for _, verb := range []string{"plan", "apply"} {
		code, out, errs := p.Run(t, "streams", verb, "--partitions", "16")
		require.Equal(t, stack.ExitFailed, code, verb)
		require.Contains(t, out+errs, "made with 8 partitions, which is fixed for ever", verb)
		code, out, errs = p.Run(t, "streams", verb, "--replicas", "3")
		require.Equal(t, stack.ExitFailed, code, verb)
		require.Contains(t, out+errs, "set TURNLEDGER_NATS_URL", verb)
	}
	code, out, errs := p.Run(t, "streams", "plan", "--replicas", "3", "--json")
	require.Equal(t, stack.ExitFailed, code, errs)
	var plan struct {
		Partitions int
		Streams    []struct {
			Name    string
			Changes []struct{ What, Have, Want, Refused string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &plan))
	require.Equal(t, 8, plan.Partitions)
	require.Equal(t, "replicas", plan.Streams[0].Changes[0].What)
	require.NotEmpty(t, plan.Streams[0].Changes[0].Refused)
}
