package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections/audit/pgtest"
	"github.com/turnledger/turnledger/projections/recent/redis/redistest"
)

// The log is backed up while it is used, goes on, and is lost; the backup becomes the log
// of a server on an empty data directory, beside views that had gone on, too.
func TestBackupIsRestoredBesideViewsThatWentOn(t *testing.T) {
	t.Parallel()
	pg, redis := pgtest.Start(t), redistest.Start(t)
	env := []string{"TURNLEDGER_POSTGRES_URL=" + pg.URL(), "TURNLEDGER_REDIS_URL=" + redis.URL(), "TURNLEDGER_PARTITIONS=2"}
	dir := dataDir(t)
	p := start(t, env, "serve", "--data-dir", dir)
	for _, s := range []string{"kept", "redacted", "erased", "hers"} {
		p.must(t, http.StatusOK, http.MethodPut, session(s)+"/identity", map[string]any{"identity_id": "of " + s})
		p.say(t, s, 0)
	}
	p.say(t, "kept", 1)
	p.say(t, "gone before", 0)
	code, _, errs := said(t, "erase", "gone before", "--wait", "--url", p.url)
	require.Equal(t, exitDone, code, errs)
	backup := filepath.Join(t.TempDir(), "b")
	code, out, errs := said(t, "backup", backup, "--url", p.url)
	require.Equal(t, exitDone, code, errs)
	require.Regexp(t, `holds \d+ events of 2 partitions`, out)
	code, _, errs = said(t, "backup", backup, "--url", p.url)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "there is a backup already")
	require.NotContains(t, errs, "no server answers", "it is the place that will not have it")
	code, _, errs = said(t, "restore", backup, "--url", p.url)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "log_not_empty")
	require.Equal(t, exchange(2), p.context(t, "kept"), "a refused restore changes nothing")

	// What comes after the backup.
	p.say(t, "kept", 2)
	turn := events.TurnID("redacted", "r0").String()
	correctThenRedact(t, p, turn)
	for _, args := range [][]string{{"erase", "erased", "--wait"}, {"erase", "--identity", "of hers", "--wait"}} {
		code, _, errs = said(t, append(args, "--url", p.url)...)
		require.Equal(t, exitDone, code, errs)
	}
	facts := filepath.Join(t.TempDir(), "erasures.jsonl")
	code, _, errs = said(t, "replay", "--type", "turnledger.turn.redacted.v1,turnledger.session.erased.v1,turnledger.identity.erased.v1", "-o", facts, "--url", p.url)
	require.Equal(t, exitDone, code, errs)
	p.caughtUp(t, "recent", "audit")
	p.stop(t)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "nats")))

	p = start(t, env, "serve", "--data-dir", dir)
	code, out, errs = said(t, "restore", backup, "--erasures", facts, "--url", p.url)
	require.Equal(t, exitDone, code, errs+p.log.String())
	require.Contains(t, out, "5 said again, 0 concern")
	require.Contains(t, errs, "turnledger projections rebuild")
	p.waitReady(t)
	require.Equal(t, exchange(2), p.context(t, "kept"))
	for _, s := range []string{"redacted", "erased", "hers", "gone before"} {
		require.Empty(t, p.context(t, s), s)
	}
	p.must(t, http.StatusGone, http.MethodPost, session("erased")+"/turns", map[string]any{"request_id": "late", "question_neutral": "q"})
	require.Eventually(t, func() bool { return slices.Equal(p.viewsIn(t, "failed"), []string{"audit", "recent"}) }, 30*time.Second, 20*time.Millisecond, "the views notice")
	for _, name := range []string{"recent", "audit"} {
		code, _, errs = said(t, "projections", "rebuild", name, "--yes", "--url", p.url)
		require.Equal(t, exitDone, code, errs)
	}
	p.caughtUp(t, "recent", "audit")
	code, out, errs = said(t, "projections", "verify", "--url", p.url)
	require.Equal(t, exitDone, code, out+errs)
	require.Equal(t, questions(2), p.audited(t, "of kept"))
	// The eraser begins again in the restored log.
	code, _, errs = said(t, "erase", "--receipt", receiptOf(t, p, "erased"), "--wait", "--url", p.url)
	require.Equal(t, exitDone, code, errs)
	turns := p.must(t, http.StatusOK, http.MethodGet, "/v1/sessions/redacted/turns?status=all", nil)["turns"].([]any)
	require.Equal(t, "redacted", turns[0].(map[string]any)["status"])
	p.say(t, "kept", 2)
	require.Equal(t, exchange(3), p.context(t, "kept"))
	p.stop(t)
	p = start(t, env, "serve", "--data-dir", dir)
	require.Equal(t, exchange(3), p.context(t, "kept"), "it is on disk")
}

// correctThenRedact corrects a turn and redacts the correction: the backup knows the
// first version only.
func correctThenRedact(t *testing.T, p *process, turn string) {
	t.Helper()
	out := p.must(t, http.StatusOK, http.MethodPost, session("redacted")+"/turns/"+turn+"/correct", map[string]any{"request_id": "c", "answer_neutral": "better"})
	replacing := out["turn_id"].(string)
	p.must(t, http.StatusOK, http.MethodPost, session("redacted")+"/turns/"+replacing+"/redact", map[string]any{"reason": "asked"})
}

// receiptOf asks for an erasure again, which gives its first receipt.
func receiptOf(t *testing.T, p *process, s string) string {
	t.Helper()
	return p.must(t, http.StatusAccepted, http.MethodDelete, session(s), nil)["receipt_id"].(string)
}

// viewsIn names the views that have a partition in a state.
func (p *process) viewsIn(t *testing.T, state string) (names []string) {
	t.Helper()
	_, out, err := p.call(t.Context(), http.MethodGet, "/v1/projections", nil)
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

// A store that speaks S3 holds a backup as a folder does.
func TestBackupInAStoreThatSpeaksS3(t *testing.T) {
	store := s3mem.New()
	require.NoError(t, store.CreateBucket("backups"))
	s3 := httptest.NewServer(gofakes3.New(store).Server())
	t.Cleanup(s3.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
	t.Setenv("AWS_REGION", "us-east-1")
	p := start(t, nil, "serve", "--data-dir", dataDir(t))
	for i := range 3 {
		p.say(t, "s", i)
	}
	place := []string{"s3://backups/nightly/1", "--endpoint", s3.URL}
	code, out, errs := said(t, append([]string{"backup", "--json", "--url", p.url}, place...)...)
	require.Equal(t, exitDone, code, errs)
	require.NotContains(t, out+errs, "SECRET")
	var m struct{ Files []struct{ Name string } }
	require.NoError(t, json.Unmarshal([]byte(out), &m))
	require.Len(t, m.Files, 1)
	q := start(t, nil, "serve", "--data-dir", dataDir(t))
	code, out, errs = said(t, append([]string{"restore", "--url", q.url}, place...)...)
	require.Equal(t, exitDone, code, errs)
	require.Contains(t, out, "is there again: say it again")
	q.waitReady(t)
	require.Equal(t, exchange(3), q.context(t, "s"))
	code, _, errs = said(t, "restore", "s3://backups/nightly/2", "--endpoint", s3.URL, "--url", q.url)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "there is no manifest.json")
}

// What is not whole, or damaged, is named, and never sent to a server; one of other
// partitions neither.
func TestDamagedBackupIsRefused(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "serve", "--data-dir", dataDir(t))
	p.say(t, "s", 0)
	whole := t.TempDir()
	code, _, errs := said(t, "backup", filepath.Join(whole, "b"), "--url", p.url)
	require.Equal(t, exitDone, code, errs)
	empty := start(t, nil, "serve", "--data-dir", dataDir(t))
	for name, c := range map[string]struct {
		file   string
		damage func([]byte) []byte
		says   string
	}{
		"cut off":     {"TURNS-0.snapshot", func(b []byte) []byte { return b[:len(b)-5] }, "TURNS-0.snapshot has"},
		"bit":         {"TURNS-0.snapshot", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }, "TURNS-0.snapshot has another SHA-256"},
		"no file":     {"TURNS-0.snapshot", nil, "TURNS-0.snapshot is missing"},
		"no manifest": {"manifest.json", nil, "there is no manifest.json"},
		"manifest":    {"manifest.json", func(b []byte) []byte { return b[:len(b)/2] }, "manifest.json can't be read"},
		"a later one": {"manifest.json", func(b []byte) []byte { return []byte(strings.Replace(string(b), `"format": 1`, `"format": 2`, 1)) }, "has format 2"},
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
		code, _, errs := said(t, "restore", dir, "--url", empty.url)
		require.Equal(t, exitFailed, code, name)
		require.Contains(t, errs, c.says, name)
	}
	require.Empty(t, empty.context(t, "s"))
	two := start(t, nil, "serve", "--data-dir", dataDir(t), "--partitions", "2")
	code, _, errs = said(t, "restore", filepath.Join(whole, "b"), "--url", two.url)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "TURNLEDGER_PARTITIONS=1")
	code, _, errs = said(t, "restore", filepath.Join(whole, "b"), "--url", empty.url)
	require.Equal(t, exitDone, code, errs)
	empty.waitReady(t)
	require.Equal(t, exchange(1), empty.context(t, "s"))
}
