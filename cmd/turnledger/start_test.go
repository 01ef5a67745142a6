package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/projections/audit/pgtest"
	"github.com/turnledger/turnledger/projections/recent/redis/redistest"
)

// said runs a command line to its end.
func said(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var o, e bytes.Buffer
	code = run(ctx, args, &o, &e)
	return code, o.String(), e.String()
}

// TestAStartThatCannotWorkSaysWhatToDo goes through what can be wrong when the log and
// the views are opened.
func TestAStartThatCannotWorkSaysWhatToDo(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"taken API port":         {[]string{"--listen", taken.Addr().String()}, exitFailed, "set TURNLEDGER_LISTEN"},
		"taken NATS port":        {[]string{"--nats-listen", taken.Addr().String()}, exitUsage, "NATS_LISTEN"},
		"no NATS address":        {[]string{"--nats-listen", "abc"}, exitUsage, "want host:port"},
		"NATS open to all":       {[]string{"--nats-listen", "0.0.0.0:0"}, exitUsage, "put credentials into it"},
		"no PostgreSQL URL":      {[]string{"--postgres-url", "host=x passwd hidden"}, exitFailed, "PostgreSQL URL"},
		"no Redis URL":           {[]string{"--redis-url", "redis:/x:hidden@h"}, exitFailed, "Redis URL"},
		"NATS that is not there": {[]string{"--nats-url", "nats://u:hidden@127.0.0.1:1"}, exitFailed, "is it running"},
		"NATS token":             {[]string{"--nats-url", "nats://hidden@127.0.0.1:1"}, exitFailed, "is it running"},
		"no NATS URL":            {[]string{"--nats-url", "nats://u:hidden@[bad"}, exitUsage, "want nats://"},
		"TTL of minutes":         {[]string{"--session-ttl", "29m"}, exitUsage, "between 30m and 90d"},
		"TTL of months":          {[]string{"--session-ttl", "91d"}, exitUsage, "between 30m and 90d"},
		"a silence of minutes":   {[]string{"--model-silence", "3m"}, exitUsage, "at most 2m"},
		"a shadow of itself":     {[]string{"--redis-url", "redis://:hidden@h", "--recent-shadow", "redis://:hidden@h"}, exitUsage, "is the first view itself"},
		"partitions":             {[]string{"--partitions", "3"}, exitUsage, "power of two"},
		"data in a file":         {[]string{"--data-dir", file}, exitFailed, "not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"serve", "--listen", "127.0.0.1:0", "--data-dir", filepath.Join(t.TempDir(), "data")}, c.args...)
			code, _, errs := said(t, args...)
			require.Equal(t, c.code, code, errs)
			require.Contains(t, errs, c.says)
			require.NotContains(t, errs, "hidden")
		})
	}
}

// A store that answers and does not let a process in stays so: the process says it at its start, and ends.
func TestAStoreThatLetsNobodyInEndsAStart(t *testing.T) {
	t.Parallel()
	redis := strings.Replace(redistest.Start(t).URL(), "unix://", "unix://nobody:hidden@", 1)
	pg, err := url.Parse(pgtest.URL(t))
	require.NoError(t, err)
	pg.User = url.UserPassword("nobody", "hidden")
	for name, c := range map[string]struct{ flag, store, roles, says string }{
		"Redis":                  {"--redis-url", redis, "api,context,recent", "WRONGPASS"},
		"Redis of a reader":      {"--redis-url", redis, "api,context", "WRONGPASS"},
		"PostgreSQL":             {"--postgres-url", pg.String(), "api,context,audit", "does not let the role"},
		"PostgreSQL of a reader": {"--postgres-url", pg.String(), "api,context", "does not let the role"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, _, errs := said(t, "serve", "--listen", "127.0.0.1:0", "--data-dir", filepath.Join(t.TempDir(), "data"), "--roles", c.roles, c.flag, c.store)
			require.Equal(t, exitFailed, code, errs)
			require.Contains(t, errs, c.says)
			require.NotContains(t, errs, "hidden")
		})
	}
}

func TestConfigShowsNoSecret(t *testing.T) {
	t.Parallel()
	for in, out := range map[string]string{
		"": "", "127.0.0.1:4222": "127.0.0.1:4222", "nats://u:pw@h:1": "nats://u:xxxxx@h:1",
		"host=h password=pw": "(set)", "nats://token@h:1": "nats://xxxxx@h:1", "nats://u:pw@[bad": "(set)", "u:pw@h:x": "(set)",
		"redis:/x:pw@h": "(set)", "postgres://u@h/db": "postgres://u@h/db", "postgres://h/db?password=pw": "postgres://h/db?password=xxxxx",
		"https://h/v1?key=pw": "https://h/v1?key=xxxxx", "postgres://h/db?sslmode=require&sslpassword=pw": "postgres://h/db?sslmode=require&sslpassword=xxxxx",
		"nats://u:pw@a:1,nats://token@b:2": "nats://u:xxxxx@a:1,nats://xxxxx@b:2", "nats://u:p,w@a:1,nats://u:pw@b:2": "(set)", "nats://u:pw@a:1,b:2": "nats://u:xxxxx@a:1,b:2",
	} {
		require.Equal(t, out, secretless(in))
	}
}

// noted is a recorder in memory.
type noted map[string][]string

func (n noted) start(_ context.Context, session string, t turnIn) (string, bool, error) {
	n[session] = append(n[session], t.question.neutral)
	return t.requestID, false, nil
}

func (n noted) finalize(context.Context, string, string, turnIn) (bool, error) { return false, nil }

// TestALineThatCannotBeReadIsReported holds that the rest goes in.
func TestALineThatCannotBeReadIsReported(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "c.jsonl")
	require.NoError(t, os.WriteFile(file, []byte("\xef\xbb\xbf"+
		`{"conversation_id":"a","messages":[{"role":"user","content":"first"}]}
{"conversation_id":"a","messages":[{"role":"user","content":"second"}]}
{"conversation_id":"a","messages":[{"role":"user","content":"first"}]}
{"conversation_id":"b","messages":[{"role":"user","content":"caf`+"\xe9"+`"}]}
{"conversation_id":"c","messages":[{"role":"user","content":"last"}]}`), 0o600))
	for range 20 {
		rec := noted{}
		var report bytes.Buffer
		im := &importer{rec: rec, seen: map[string][32]byte{}, report: &report, bar: newProgress(io.Discard, "", unitBytes, -1)}
		require.NoError(t, im.files(t.Context(), []string{file}, 1))
		require.Equal(t, noted{"a": {"first"}, "c": {"last"}}, rec)
		require.EqualValues(t, 2, im.bad.Load())
		require.Contains(t, report.String(), "c.jsonl:2: another conversation")
		require.Contains(t, report.String(), "c.jsonl:4: not UTF-8")
	}
}
