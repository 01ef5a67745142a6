package systemtest_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

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
		python, err := exec.LookPath("python3")
		require.NoError(t, err, "install python3 (make deps)")
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
		raw, err := os.ReadFile(filepath.Join(dir, "postgres", "cluster", "postmaster.pid"))
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.Fields(string(raw))[0])
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		p.RecordExchange(t, "s", 1)
		p.WaitCaughtUp(t, "audit")
		require.Equal(t, stack.Questions(2), p.AuditedQuestions(t, "u"))
		p.WaitLog(t, "PostgreSQL has ended and is started again")
	})
}
