package systemtest_test

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/hang"
	"github.com/turnledger/turnledger/deploy/testkit/pg"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
	"github.com/turnledger/turnledger/events"
)

// The log is backed up while it is used, grows, and is lost. The backup becomes the log of a server on an empty data
// directory, whose views in Redis and PostgreSQL are ahead of that log.
func TestBackupIsRestoredBesideViewsThatWentOn(t *testing.T) {
	t.Parallel()
	pg, redis := pg.URL(t), redistest.Start(t)
	env := []string{"TURNLEDGER_POSTGRES_URL=" + pg, "TURNLEDGER_REDIS_URL=" + redis.URL(),
		"TURNLEDGER_PARTITIONS=2"}
	dir := stack.DataDir(t)
	p := stack.Start(t, env, "serve", "--data-dir", dir)
	for _, s := range []string{"kept", "redacted", "erased", "hers"} {
		p.LinkIdentity(t, s, "of "+s)
		p.RecordExchange(t, s, 0)
	}
	p.RecordExchange(t, "kept", 1)
	p.RecordExchange(t, "gone before", 0)
	p.Done(t, "erase", "gone before", "--wait")
	backup := filepath.Join(t.TempDir(), "b")
	out := p.Done(t, "backup", backup)
	require.Regexp(t, `holds \d+ events of 2 partitions`, out)
	errs := p.Fails(t, "backup", backup)
	require.Contains(t, errs, "there is a backup already")
	require.NotContains(t, errs, "no server answers", "it is the place that will not have it")
	errs = p.Fails(t, "restore", backup)
	require.Contains(t, errs, "log_not_empty")
	require.Equal(t, stack.Exchanges(2), p.Context(t, "kept"), "a refused restore changes nothing")

	// What comes after the backup.
	p.RecordExchange(t, "kept", 2)
	turn := events.TurnID("redacted", "r0").String()
	correctThenRedact(t, p, turn)
	for _, args := range [][]string{{"erase", "erased", "--wait"}, {"erase", "--identity", "of hers", "--wait"}} {
		p.Done(t, args...)
	}
	facts := filepath.Join(t.TempDir(), "erasures.jsonl")
	p.Done(t, "replay", "--type",
		"turnledger.turn.redacted.v1,turnledger.session.erased.v1,turnledger.identity.erased.v1", "-o", facts)
	p.WaitCaughtUp(t, "recent", "audit")
	p.Stop(t)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "nats")))

	p = stack.Start(t, env, "serve", "--data-dir", dir)
	code, out, errs := p.Run(t, "restore", backup, "--erasures", facts)
	require.Equal(t, stack.ExitDone, code, errs+p.Log.String())
	require.Contains(t, out, "5 said again, 0 concern")
	require.Contains(t, errs, "turnledger projections rebuild")
	p.WaitReady(t)
	require.Equal(t, stack.Exchanges(2), p.Context(t, "kept"))
	for _, s := range []string{"redacted", "erased", "hers", "gone before"} {
		require.Empty(t, p.Context(t, s), s)
	}
	p.Must(t, http.StatusGone, http.MethodPost, stack.SessionPath("erased")+"/turns",
		map[string]any{"request_id": "late", "question_neutral": "q"})
	hang.Until(t, func() bool {
		return slices.Equal(viewsIn(t, p, "failed"), []string{"audit", "recent"})
	}, "the views notice")
	checks := p.Get(t, "/readyz")["checks"].(map[string]any)
	for check, view := range map[string]string{"redis": "recent", "postgres": "audit"} {
		require.Contains(t, checks[check].(map[string]any)["reason"], "turnledger projections rebuild "+view)
	}
	for _, name := range []string{"recent", "audit"} {
		p.Done(t, "projections", "rebuild", name, "--yes")
	}
	p.WaitCaughtUp(t, "recent", "audit")
	p.Done(t, "projections", "verify")
	require.Equal(t, stack.Questions(2), p.AuditedQuestions(t, "of kept"))
	// The eraser begins again in the restored log.
	p.Done(t, "erase", "--receipt", receiptOfDeletion(t, p, "erased"), "--wait")
	turns := p.Get(t, "/v1/sessions/redacted/turns?status=all")["turns"].([]any)
	require.Equal(t, "redacted", turns[0].(map[string]any)["status"])
	p.RecordExchange(t, "kept", 2)
	require.Equal(t, stack.Exchanges(3), p.Context(t, "kept"))
	p.Stop(t)
	p = stack.Start(t, env, "serve", "--data-dir", dir)
	require.Equal(t, stack.Exchanges(3), p.Context(t, "kept"), "it is on disk")
}

// correctThenRedact corrects a turn and redacts the correction: the backup knows the
// first version only.
func correctThenRedact(t *testing.T, p *stack.Process, turn string) {
	t.Helper()
	out := p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("redacted")+"/turns/"+turn+"/correct",
		map[string]any{"request_id": "c", "answer_neutral": "better"})
	replacing := out["turn_id"].(string)
	p.Must(t, http.StatusOK, http.MethodPost, stack.SessionPath("redacted")+"/turns/"+replacing+"/redact",
		map[string]any{"reason": "asked"})
}

// receiptOfDeletion asks for an erasure again, which returns its first receipt.
func receiptOfDeletion(t *testing.T, p *stack.Process, s string) string {
	t.Helper()
	return p.Must(t, http.StatusAccepted, http.MethodDelete, stack.SessionPath(s), nil)["receipt_id"].(string)
}

// viewsIn names the views that have a partition in a state.
func viewsIn(t *testing.T, p *stack.Process, state string) (names []string) {
	t.Helper()
	_, out, err := p.Call(t.Context(), http.MethodGet, "/v1/projections", nil)
	if err != nil {
		return nil
	}
	list, _ := out["projections"].([]any)
	for _, x := range list {
		if one := x.(map[string]any); one["state"] == state {
			names = append(names, one["name"].(string))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// A backup that is damaged or lacks a file is refused with the file's name, before anything is sent to the server.
// So is a backup of another number of partitions. A server compares what it took in with the manifest before it serves
// the restored log.
func TestDamagedBackupIsRefused(t *testing.T) {
	t.Parallel()
	p := stack.Serve(t, nil)
	p.RecordExchange(t, "s", 0)
	whole := t.TempDir()
	p.Done(t, "backup", filepath.Join(whole, "b"))
	empty := stack.Serve(t, nil)
	for name, c := range map[string]struct {
		file   string
		damage func([]byte) []byte
		says   string
	}{
		"cut off": {"TURNS-0.snapshot", func(b []byte) []byte { return b[:len(b)-5] }, "TURNS-0.snapshot has"},
		"bit": {"TURNS-0.snapshot", func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
			"TURNS-0.snapshot has another SHA-256"},
		"no file":     {"TURNS-0.snapshot", nil, "TURNS-0.snapshot is missing"},
		"no manifest": {"manifest.json", nil, "there is no manifest.json"},
		"manifest":    {"manifest.json", func(b []byte) []byte { return b[:len(b)/2] }, "manifest.json can't be read"},
		"a later one": {"manifest.json", func(b []byte) []byte {
			return []byte(strings.Replace(string(b), `"format": 1`, `"format": 2`, 1))
		}, "has format 2"},
		"another count": {"manifest.json", func(b []byte) []byte {
			return regexp.MustCompile(`"events": \d+`).ReplaceAll(b, []byte(`"events": 1000`))
		}, ""},
	} {
		dir := filepath.Join(whole, name)
		require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(whole, "b"))))
		path := filepath.Join(dir, c.file)
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.Remove(path))
		if c.damage != nil {
			require.NoError(t, os.WriteFile(path, c.damage(raw), 0o600))
		}
		errs := empty.Fails(t, "restore", dir)
		require.Contains(t, errs, c.says, name)
		empty.WaitReady(t)
	}
	empty.WaitLog(t, "holds 2 events")
	require.Empty(t, empty.Context(t, "s"))
	two := stack.Start(t, nil, "serve", "--data-dir", stack.DataDir(t), "--partitions", "2")
	errs := two.Fails(t, "restore", filepath.Join(whole, "b"))
	require.Contains(t, errs, "TURNLEDGER_PARTITIONS=1")
	empty.Done(t, "restore", filepath.Join(whole, "b"))
	empty.WaitReady(t)
	require.Equal(t, stack.Exchanges(1), empty.Context(t, "s"))
}
