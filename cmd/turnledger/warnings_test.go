package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// During an outage each job fails for the same cause, and one line a minute says so; other causes, other messages and
// other views have lines of their own.
//
//conformance:l11
func TestAWarningIsWrittenOncePerCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, all bytes.Buffer
		quiet := slog.New(newOncePerCause(slog.NewTextHandler(&out, nil)))
		verbose := slog.New(newOncePerCause(slog.NewTextHandler(&all, &slog.HandlerOptions{Level: slog.LevelDebug})))
		lines := func() []string {
			defer out.Reset()
			return strings.Split(strings.TrimSpace(out.String()), "\n")
		}
		away := func() error { return fmt.Errorf("append: %w", errors.New("the log is unavailable")) }
		for n := range 1_000 {
			for _, log := range []*slog.Logger{quiet.With("session_id", n), verbose} {
				log.Warn("an erasure is tried again", "attempt", n, "err", away())
			}
		}
		require.Len(t, lines(), 1)
		require.Equal(t, 1, strings.Count(all.String(), "level=WARN"))
		require.Equal(t, 999, strings.Count(all.String(), "level=DEBUG"))

		quiet.Warn("an erasure is tried again", "err", errors.New("another cause"))
		quiet.Warn("a batch is tried again", "projection", "audit", "err", away())
		quiet.Warn("a batch is tried again", "projection", "recent", "err", away())
		require.Len(t, lines(), 3)
		for range 2 {
			quiet.Error("a view has failed", "err", away())
			quiet.Warn("request", "err", "the log is unavailable")
		}
		require.Len(t, lines(), 4, "errors and requests are written each time")

		<-time.After(time.Minute)
		quiet.Warn("an erasure is tried again", "err", away())
		got := lines()
		require.Len(t, got, 1)
		require.Contains(t, got[0], "times_before=1000")
	})
}
