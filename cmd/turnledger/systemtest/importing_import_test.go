package systemtest_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// Every imported conversation comes back whole and in order, each message to the byte. A second import changes nothing,
// and neither does a restart. The long form reads every conversation before the restart, too.
func TestEveryConversationComesBackWhole(t *testing.T) {
	t.Parallel()
	files := stack.ConversationFiles(t)
	conversations := stack.ReadConversations(t, files)
	dir := stack.DataDir(t)
	p := stack.Start(t, nil, "dev", "--data-dir", dir)
	out := p.Done(t, append([]string{"import"}, files...)...)
	t.Log(out)
	same := func(when string, each int) {
		for n, c := range conversations {
			if n%each == 0 {
				require.Equal(t, c.Messages, p.Context(t, c.ID), "%s %s", c.ID, when)
			}
		}
	}
	each := 10
	if stack.Long() {
		each = 1
	}
	same("after the import", each)
	head := p.Must(t, 200, "GET", stack.SessionPath(conversations[0].ID), nil)["position"]
	out = p.Done(t, append([]string{"import"}, files...)...)
	require.Contains(t, out, ": 0 turns recorded")
	require.Equal(t, head, p.Must(t, 200, "GET", stack.SessionPath(conversations[0].ID), nil)["position"],
		"the second import wrote to the log")
	p.Stop(t)
	p = stack.Start(t, nil, "dev", "--data-dir", dir)
	same("after a restart", 1)
}

// The process is killed (-9) at random moments of an import. After the restart all that was acknowledged is there. When
// the import has run again every turn is there once and in order. The long form has the real conversations, too.
func TestKill9DuringImportLosesNothing(t *testing.T) {
	t.Parallel()
	rounds, files := 3, []string{}
	if stack.Long() {
		rounds, files = 50, stack.ConversationFiles(t)
	}
	seed := stack.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 2))
	dir := stack.DataDir(t)
	acknowledged := &acknowledgements{turns: map[string]map[string]bool{}}
	for round := range rounds {
		p := stack.Start(t, nil, "serve", "--data-dir", dir)
		acknowledged.check(t, p, seed)
		// There is always something new to record.
		files = append(files, stack.WriteConversations(t, rng, round))
		before := acknowledged.len()
		newest := slices.Clone(files)
		slices.Reverse(newest)
		stop := acknowledged.startImport(t, p, newest)
		moment := before + rng.IntN(stack.WrittenTurns)
		hang.Until(t, func() bool { return acknowledged.len() > moment })
		p.Kill(t)
		stop()
		t.Logf("seed %d round %d: %d more turns acknowledged", seed, round, acknowledged.len()-before)
	}
	p := stack.Start(t, nil, "serve", "--data-dir", dir)
	acknowledged.check(t, p, seed)
	p.Done(t, append([]string{"import"}, files...)...)
	for _, c := range stack.ReadConversations(t, files) {
		require.Equal(t, c.Messages, p.Context(t, c.ID), "seed %d: %s", seed, c.ID)
	}
	t.Logf("seed %d: %d rounds, %d turns acknowledged", seed, rounds, acknowledged.len())
	p.Stop(t)
}
