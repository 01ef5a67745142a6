package systemtest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/pg"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// An operator has dropped a dead letter, and the log is lost, which has kept who and why. The backup brings both back,
// so that a rebuild of the audit passes over the event.
func TestABackupHoldsTheDeadLetters(t *testing.T) {
	t.Parallel()
	pg, dir := pg.URL(t), stack.DataDir(t)
	env := []string{"TURNLEDGER_POSTGRES_URL=" + pg}
	p := stack.Start(t, env, "serve", "--data-dir", dir)
	db, err := pgx.Connect(t.Context(), pg)
	require.NoError(t, err)
	defer func() { _ = db.Close(t.Context()) }()
	_, err = db.Exec(t.Context(), "alter table turnledger.questions add constraint poison check (question_neutral <> "+
		"'question 1')")
	require.NoError(t, err)
	p.LinkIdentity(t, "s", "u")
	for i := range 3 {
		p.RecordExchange(t, "s", i)
	}
	p.WaitCaughtUp(t, "audit")
	p.Done(t, "deadletters", "drop", "audit", "0:4", "--reason", "a lie", "--by", "ada")
	backup := filepath.Join(t.TempDir(), "b")
	code, _, errs := p.Run(t, "backup", backup)
	require.Equal(t, stack.ExitDone, code, errs)
	require.NotContains(t, errs, "dead letters are not in the backup")
	p.Stop(t)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "nats")))

	p = stack.Start(t, env, "serve", "--data-dir", dir)
	p.Done(t, "restore", backup)
	p.WaitReady(t)
	_, out, problems := p.Run(t, "deadletters", "show", "audit", "0:4")
	require.Contains(t, out, "dropped by  ada\n", problems)
	p.Done(t, "projections", "rebuild", "audit", "--yes")
	p.WaitCaughtUp(t, "audit")
	require.Equal(t, stack.Questions(3), p.AuditedQuestions(t, "u"), "the new tables refuse nothing")
	_, out, _ = p.Run(t, "deadletters", "list", "--json")
	require.JSONEq(t, `{"deadletters":[]}`, out)
}
