package systemtest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// Secrets can be read from files. `config` prints no secret, wherever it came from.
func TestSecretsComeFromFilesAndAreNotShown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := stack.Binary(t)
	file := func(name, text string) string {
		t.Helper()
		f := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(f, []byte(text), 0o600))
		return f
	}
	config := func(env ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), path, "config")
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	secrets := map[string]string{
		"TURNLEDGER_POSTGRES_URL": "postgres://u:SECRET@db.example/t?sslmode=verify-full&sslrootcert=/ca.pem",
		"TURNLEDGER_REDIS_URL":    "rediss://:SECRET@redis.example:6379/0",
		"TURNLEDGER_NATS_URL":     "tls://u:SECRET@nats.example:4222,tls://u:SECRET@nats2.example:4222",
		"TURNLEDGER_MODEL_KEY":    "SECRET", "TURNLEDGER_MODEL_URL": "https://model.example/v1",
		"TURNLEDGER_REWRITER_KEY": "SECRET", "TURNLEDGER_MEMORY_KEY": "SECRET", "TURNLEDGER_SUMMARY_KEY": "SECRET",
		"TURNLEDGER_HASH_KEY":    "SECRET",
		"TURNLEDGER_CONSOLE_KEY": "SECRET", "TURNLEDGER_CONSOLE_OIDC_CLIENT_SECRET": "SECRET",
		"TURNLEDGER_MODEL_NAME":    "m",
		"TURNLEDGER_RECENT_SHADOW": "redis://:SECRET@shadow.example:6379",
	}
	var plain, filed []string
	for name, value := range secrets {
		plain = append(plain, name+"="+value)
		filed = append(filed, name+"_FILE="+file(name, value+"\n"))
	}
	one, err := config(plain...)
	require.NoError(t, err, one)
	other, err := config(filed...)
	require.NoError(t, err, other)
	require.Equal(t, one, other)
	require.NotContains(t, strings.ReplaceAll(one, "CLIENT_SECRET=", "="), "SECRET") // but for a setting's name
	require.Contains(t, one, "db.example")
	require.Contains(t, one, "TURNLEDGER_MODEL_KEY=(set)")
	for says, env := range map[string][]string{
		"are both set":       {"TURNLEDGER_MODEL_KEY=SECRET", "TURNLEDGER_MODEL_KEY_FILE=" + file("a", "SECRET")},
		"must hold one line": {"TURNLEDGER_MODEL_KEY_FILE=" + file("b", "SECRET\nSECRET")},
		"is empty":           {"TURNLEDGER_MODEL_KEY_FILE=" + file("c", "\n")},
		"no such file":       {"TURNLEDGER_MODEL_KEY_FILE=" + filepath.Join(dir, "none")},
	} {
		out, err := config(env...)
		require.Error(t, err)
		require.Contains(t, out, says)
		require.Contains(t, out, "TURNLEDGER_MODEL_KEY_FILE")
		require.NotContains(t, out, "SECRET")
	}
}
