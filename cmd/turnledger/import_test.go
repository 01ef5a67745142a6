package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// conversationFiles are those of TURNLEDGER_TEST_DATA, which must hold some, or the
// project's own examples.
func conversationFiles(t testing.TB) []string {
	t.Helper()
	dir := os.Getenv("TURNLEDGER_TEST_DATA")
	if dir == "" {
		dir = "../../docs/examples"
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	require.NoError(t, err)
	require.NotEmpty(t, files, "no conversations in %s", dir)
	return files
}

type conversationIn struct {
	ID       string `json:"conversation_id"`
	Messages []any  `json:"messages"`
}

func readConversations(t testing.TB, files []string) (out []conversationIn) {
	t.Helper()
	for _, name := range files {
		f, err := os.Open(name)
		require.NoError(t, err)
		s := bufio.NewScanner(f)
		s.Buffer(nil, 64<<20)
		for s.Scan() {
			var c conversationIn
			require.NoError(t, json.Unmarshal(s.Bytes(), &c))
			out = append(out, c)
		}
		require.NoError(t, s.Err())
		require.NoError(t, f.Close())
	}
	return out
}

// cli runs a verb of this process against a server.
func turnledger(t testing.TB, p *process, args ...string) (int, string, string) {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(t.Context(), append(args, "--url", p.url), &out, &errs)
	return code, out.String(), errs.String()
}

// Every conversation that is imported comes back whole, in order, to the byte of
// every message; a second import changes nothing; and so it is after a restart.
func TestEveryConversationComesBackWhole(t *testing.T) {
	t.Parallel()
	files := conversationFiles(t)
	conversations := readConversations(t, files)
	dir := dataDir(t)
	p := start(t, nil, "dev", "--data-dir", dir)
	out, errs, code := p.verb(t, append([]string{"import"}, files...)...)
	require.Equal(t, exitDone, code, "%s%s", out, errs)
	t.Log(out)
	same := func(when string) {
		for _, c := range conversations {
			require.Equal(t, c.Messages, p.context(t, c.ID), "%s %s", c.ID, when)
		}
	}
	same("after the import")
	head := p.must(t, 200, "GET", session(conversations[0].ID), nil)["position"]
	out, errs, code = p.verb(t, append([]string{"import"}, files...)...)
	require.Equal(t, exitDone, code, errs)
	require.Contains(t, out, ": 0 turns recorded")
	require.Equal(t, head, p.must(t, 200, "GET", session(conversations[0].ID), nil)["position"], "the second import wrote to the log")
	p.stop(t)
	p = start(t, nil, "dev", "--data-dir", dir)
	same("after a restart")
}

// kill -9 of the whole process at random moments of an import: what had been
// acknowledged is there before the import runs again, and afterwards every turn is
// there once and in order. The long form has the real conversations too.
func TestKill9DuringImportLosesNothing(t *testing.T) {
	t.Parallel()
	rounds, files := 5, []string{}
	if long() {
		rounds, files = 50, conversationFiles(t)
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 2))
	dir := dataDir(t)
	acknowledged := newAcks()
	for round := range rounds {
		p := start(t, nil, "dev", "--data-dir", dir)
		acknowledged.check(t, p, seed)
		// There is always something new to record.
		files = append(files, madeConversations(t, rng, round))
		ctx, end := context.WithCancel(t.Context())
		before := acknowledged.len()
		done := make(chan struct{})
		go func() {
			defer close(done)
			acknowledged.importAll(ctx, t, p, slices.Backward(files))
		}()
		moment := before + rng.IntN(madeTurns)
		require.Eventually(t, func() bool { return acknowledged.len() > moment }, time.Minute, 200*time.Microsecond)
		p.kill(t)
		end()
		<-done
		t.Logf("seed %d round %d: %d more turns acknowledged", seed, round, acknowledged.len()-before)
	}
	p := start(t, nil, "dev", "--data-dir", dir)
	acknowledged.check(t, p, seed)
	code, out, errs := turnledger(t, p, append([]string{"import"}, files...)...)
	require.Equal(t, exitDone, code, "%s%s", out, errs)
	for _, c := range readConversations(t, files) {
		require.Equal(t, c.Messages, p.context(t, c.ID), "seed %d: %s", seed, c.ID)
	}
	t.Logf("seed %d: %d rounds, %d turns acknowledged", seed, rounds, acknowledged.len())
	p.stop(t)
}

// madeTurns are in a file of madeConversations.
const madeTurns = 400

func madeConversations(t testing.TB, rng *rand.Rand, round int) string {
	t.Helper()
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	for i := range madeTurns / 2 {
		var messages []any
		for n := range 4 {
			role := []string{"user", "assistant"}[n%2]
			messages = append(messages, map[string]any{"role": role, "content": fmt.Sprintf("%s %d of %d: %s", role, n, i, strings.Repeat("word ", rng.IntN(200)))})
		}
		require.NoError(t, enc.Encode(conversationIn{ID: fmt.Sprintf("round-%d-%d", round, i), Messages: messages}))
	}
	name := filepath.Join(t.TempDir(), fmt.Sprint("round-", round, ".jsonl"))
	require.NoError(t, os.WriteFile(name, buf.Bytes(), 0o600))
	return name
}
