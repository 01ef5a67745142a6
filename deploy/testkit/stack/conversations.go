package stack

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
)

// root returns the folder of the repository.
func root(t testing.TB) string {
	t.Helper()
	dir := must.Get(os.Getwd())(t)
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "cmd", "turnledger")); err == nil {
			return dir
		}
	}
	require.FailNow(t, "the test's folder is not in the repository")
	return ""
}

// ConversationFiles returns the files of TURNLEDGER_TEST_DATA, which must hold some, or else the
// project's own examples.
func ConversationFiles(t testing.TB) []string {
	t.Helper()
	dir := os.Getenv("TURNLEDGER_TEST_DATA")
	if dir == "" {
		dir = filepath.Join(root(t), "docs", "examples")
	}
	files := must.Get(filepath.Glob(filepath.Join(dir, "*.jsonl")))(t)
	require.NotEmpty(t, files, "no conversations in %s", dir)
	return files
}

// Conversation is a line of an import.
type Conversation struct {
	ID       string `json:"conversation_id"`
	Messages []any  `json:"messages"`
}

// ReadConversations reads the conversations of files.
func ReadConversations(t testing.TB, files []string) (out []Conversation) {
	t.Helper()
	for _, name := range files {
		f := must.Get(os.Open(name))(t)
		s := bufio.NewScanner(f)
		s.Buffer(nil, 64<<20)
		for s.Scan() {
			var c Conversation
			require.NoError(t, json.Unmarshal(s.Bytes(), &c))
			out = append(out, c)
		}
		require.NoError(t, s.Err())
		require.NoError(t, f.Close())
	}
	return out
}

// WrittenTurns is how many turns a file of WriteConversations has.
const WrittenTurns = 400

// WriteConversations writes a file of conversations that differ from those of other rounds.
func WriteConversations(t testing.TB, rng *rand.Rand, round int) string {
	t.Helper()
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	for i := range WrittenTurns / 2 {
		var messages []any
		for n := range 4 {
			role := []string{"user", "assistant"}[n%2]
			content := fmt.Sprintf("%s %d of %d: %s", role, n, i, strings.Repeat("word ", rng.IntN(200)))
			messages = append(messages, map[string]any{"role": role, "content": content})
		}
		require.NoError(t, enc.Encode(Conversation{ID: fmt.Sprintf("round-%d-%d", round, i), Messages: messages}))
	}
	name := filepath.Join(t.TempDir(), fmt.Sprint("round-", round, ".jsonl"))
	require.NoError(t, os.WriteFile(name, buf.Bytes(), 0o600))
	return name
}
