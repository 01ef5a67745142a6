package systemtest_test

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/pg"
	redistest "github.com/turnledger/turnledger/deploy/testkit/redis"
	"github.com/turnledger/turnledger/deploy/testkit/stack"
)

// TestAStartThatCannotWorkSaysWhatToDo goes through what can be wrong when the log and
// the views are opened.
//
//conformance:h25
func TestAStartThatCannotWorkSaysWhatToDo(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	other := noNATS(t)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"taken API port": {[]string{"--listen", taken.Addr().String()}, stack.ExitFailed,
			"set TURNLEDGER_LISTEN"},
		"taken NATS port": {[]string{"--nats-listen", taken.Addr().String()}, stack.ExitUsage, "NATS_LISTEN"},
		"no PostgreSQL URL": {[]string{"--postgres-url", "host=x passwd hidden"}, stack.ExitFailed,
			"PostgreSQL URL"},
		"no Redis URL": {[]string{"--redis-url", "redis:/x:hidden@h"}, stack.ExitFailed, "Redis URL"},
		"no NATS there": {[]string{"--nats-url", "nats://u:hidden@" + other}, stack.ExitFailed,
			"is it running"},
		"NATS token": {[]string{"--nats-url", "nats://hidden@" + other}, stack.ExitFailed,
			"is it running"},
		"data in a file": {[]string{"--data-dir", file}, stack.ExitFailed, "not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"serve", "--listen", "127.0.0.1:0",
				"--data-dir", filepath.Join(t.TempDir(), "data")}, c.args...)
			code, _, errs := stack.Run(t, args...)
			require.Equal(t, c.code, code, errs)
			require.Contains(t, errs, c.says)
			require.NotContains(t, errs, "hidden")
		})
	}
}

// noNATS returns the address of a server of another kind. A start would wait for a NATS that does not answer.
func noNATS(t *testing.T) string {
	t.Helper()
	other, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Close() })
	go func() {
		for {
			caller, err := other.Accept()
			if err != nil {
				return
			}
			_, _ = caller.Write([]byte("SSH-2.0-other\r\n"))
			_ = caller.Close()
		}
	}()
	return other.Addr().String()
}

// A store that refuses the process's login will not change its mind: the process says so at its start, and ends.
func TestAStoreThatRefusesTheLoginEndsTheStart(t *testing.T) {
	t.Parallel()
	redis := strings.Replace(redistest.Start(t).URL(), "unix://", "unix://nobody:hidden@", 1)
	pg, err := url.Parse(pg.URL(t))
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
			code, _, errs := stack.Run(t, "serve", "--listen", "127.0.0.1:0",
				"--data-dir", filepath.Join(t.TempDir(), "data"), "--roles", c.roles, c.flag, c.store)
			require.Equal(t, stack.ExitFailed, code, errs)
			require.Contains(t, errs, c.says)
			require.NotContains(t, errs, "hidden")
		})
	}
}
