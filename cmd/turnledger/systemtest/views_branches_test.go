package systemtest_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// An identity's list has each turn once, in the session that it stands in, whichever of root and branches was linked,
// and whatever was forked before and after.
func TestIdentityListsSharedTurnsOnce(t *testing.T) {
	t.Parallel()
	p := stack.Serve(t, []string{"TURNLEDGER_PARTITIONS=8", "TURNLEDGER_POSTGRES_URL=" + pg.URL(t)})
	fork := func(session, branch string) {
		p.Must(t, http.StatusCreated, http.MethodPost, stack.SessionPath(session)+"/fork",
			map[string]any{"request_id": branch, "session_id": branch})
	}
	listed := func() (out [][]any) {
		for _, of := range p.Get(t, "/v1/identities/ada/turns?limit=100")["turns"].([]any) {
			of := of.(map[string]any)
			require.Equal(t, []any{"ada", false}, []any{of["identity_id"], of["inherited"]})
			out = append(out, []any{of["session_id"], of["question_neutral"]})
		}
		return out
	}
	p.RecordTurn(t, "stem", "1", "one", "1")
	second := p.RecordTurn(t, "stem", "2", "two", "2")
	fork("stem", "branch")
	fork("stem", "leaf")
	p.RecordTurn(t, "branch", "1", "of the branch", "b")
	fork("branch", "twig")
	p.RecordTurn(t, "twig", "1", "of the twig", "t")
	require.Empty(t, listed())

	p.LinkIdentity(t, "twig", "ada")
	p.RecordTurn(t, "leaf", "1", "of the leaf", "l")
	want := [][]any{
		{"stem", "one"}, {"stem", "two"}, {"branch", "of the branch"}, {"twig", "of the twig"}, {"leaf", "of the leaf"},
	}
	// A crash in the middle of the link would leave the rest of the branches to an effect.
	require.EventuallyWithT(t, func(c *assert.CollectT) { require.ElementsMatch(c, want, listed()) },
		hang.Limit, 20*time.Millisecond)

	// A branch of a linked session is linked from its first event on.
	fork("leaf", "bud")
	p.RecordTurn(t, "bud", "1", "of the bud", "u")
	want = append(want, []any{"bud", "of the bud"})
	require.ElementsMatch(t, want, listed())
	p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("stem")+"/turns/"+second+"/redact", nil)
	require.ElementsMatch(t, append(want[:1:1], want[2:]...), listed())
}

// The view in memory holds branches as those in servers do, whether their mark is in the same append or in another
// partition: comparisons find no difference, also after a restart.
func TestBranchesOfTheViewInMemory(t *testing.T) {
	t.Parallel()
	for _, partitions := range []string{"1", "4"} {
		t.Run(partitions+" partitions", func(t *testing.T) {
			t.Parallel()
			dir := stack.DataDir(t)
			env := []string{"TURNLEDGER_PARTITIONS=" + partitions}
			p := stack.Serve(t, env, "--data-dir", dir)
			fork := func(session, branch string) {
				p.Must(t, http.StatusCreated, http.MethodPost, stack.SessionPath(session)+"/fork",
					map[string]any{"request_id": branch, "session_id": branch})
			}
			verified := func() {
				code, out, errs := p.Run(t, "projections", "verify")
				require.Equal(t, stack.ExitDone, code, out+errs)
			}
			for _, stem := range []string{"anonymous", "ada's"} {
				p.RecordTurn(t, stem, "1", "one", "1")
				if stem == "ada's" {
					p.LinkIdentity(t, stem, "ada")
				}
				fork(stem, "leaf of "+stem)
				fork(stem, "branch of "+stem)
				fork("branch of "+stem, "twig of "+stem)
				p.RecordTurn(t, "branch of "+stem, "1", "of the branch", "b")
			}
			verified()
			p.Kill(t)
			p = stack.Serve(t, env, "--data-dir", dir)
			verified()
		})
	}
}
