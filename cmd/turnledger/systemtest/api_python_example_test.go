package systemtest_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// The example for Python runs with the standard library alone, and prints what docs/openai.md shows. Those for Node are
// run by make test-clients.
//
//conformance:o76
func TestThePythonExample(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	require.NoError(t, err, "install python3 (make deps)")
	p := stack.Start(t, nil, "dev", "--data-dir", stack.DataDir(t))
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
}
