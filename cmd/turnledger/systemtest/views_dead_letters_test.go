package systemtest_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/services/client"
)

// PostgreSQL refuses a turn for good, and the audit goes on with the next one. An operator sees the dead letter,
// retries it in vain, drops it, mends the table, and retries it with success. Then the tables are built again.
func TestAnOperatorLooksAfterADeadLetter(t *testing.T) {
	t.Parallel()
	pg := pg.URL(t)
	p := stack.Serve(t, []string{"TURNLEDGER_POSTGRES_URL=" + pg})
	db, err := pgx.Connect(t.Context(), pg)
	require.NoError(t, err)
	defer func() { _ = db.Close(t.Context()) }()
	_, err = db.Exec(t.Context(),
		"alter table turnledger.questions add constraint poison check (question_neutral <> 'question 1')")
	require.NoError(t, err)
	p.LinkIdentity(t, "s", "u")
	for i := range 4 {
		p.RecordExchange(t, "s", i)
	}
	p.WaitCaughtUp(t, "audit")
	require.Equal(t, []string{"question 0", "question 2", "question 3"}, p.AuditedQuestions(t, "u"),
		"those behind it went on")
	require.Contains(t, p.Metrics(t), `turnledger_projection_dead_letters{projection="audit",state="waiting"} 1`)
	require.Contains(t, p.Metrics(t), `turnledger_projection_dead_letters{projection="recent",state="waiting"} 0`)
	require.Contains(t, p.Metrics(t), `turnledger_projection_dead_letters_total{projection="audit"} 1`)

	out := p.Done(t, "deadletters", "list")
	require.Contains(t, out, "audit       0:4       turnledger.turn.started.v1  waiting  1")
	out = p.Done(t, "deadletters", "list", "--projection", "recent", "--json")
	require.JSONEq(t, `{"deadletters":[]}`, out)
	out = p.Done(t, "deadletters", "show", "audit", "0:4", "--json")
	var shown client.DeadLetter
	require.NoError(t, json.Unmarshal([]byte(out), &shown))
	require.Equal(t, "s", shown.SessionID)
	require.Contains(t, shown.Reason, "23514")

	status, out, problems := p.Run(t, "deadletters", "retry", "audit", "0:4")
	require.Equal(t, stack.ExitFailed, status)
	require.Contains(t, out, "refused again, after 2 attempts")
	require.Contains(t, problems, "deadletters drop")
	p.Done(t, "deadletters", "drop", "audit", "0:4", "--reason", "a lie", "--by", "ada")
	_, out, _ = p.Run(t, "deadletters", "show", "audit", "0:4")
	require.Contains(t, out, "dropped by  ada\n")
	_, again, _ := p.Run(t, "deadletters", "drop", "audit", "0:4", "--reason", "another", "--by", "bob")
	require.Contains(t, again, "dropped by ada", "who said so first stands")
	require.Contains(t, out, "because     a lie\n")
	require.Contains(t, p.Metrics(t), `turnledger_projection_dead_letters{projection="audit",state="dropped"} 1`)

	problems = p.Fails(t, "projections", "verify", "audit")
	require.Contains(t, problems,
		"audit lacks what its dead letters say: 1, 1 of them dropped (turnledger deadletters list)")
	_, err = db.Exec(t.Context(), "alter table turnledger.questions drop constraint poison")
	require.NoError(t, err)
	out = p.Done(t, "deadletters", "retry", "audit", "0:4")
	require.Equal(t, "0:4 of audit: applied; its session is as the log has it\n", out)
	require.Equal(t, stack.Questions(4), p.AuditedQuestions(t, "u"))
	for _, gone := range [][]string{{"show", "audit", "0:4"}, {"retry", "audit", "0:4"}, {"show", "other", "0:4"},
		{"list", "--projection", "other"}} {
		problems = p.Fails(t, append([]string{"deadletters"}, gone...)...)
		require.Contains(t, problems, "not_found", "%v", gone)
	}
	rebuildOnATerminal(t, p, pg)
	require.False(t, strings.Contains(p.Log.String(), "question 1"), "a text stands in the log")
}
