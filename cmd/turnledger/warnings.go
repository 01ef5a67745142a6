package main

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// oncePerCause is a slog.Handler that writes a warning about an error once a minute, however many sessions, batches or
// readers it comes from: during an outage all of them fail for the same cause. The others are written at the level of
// debugging, and the next warning says how many they were.
type oncePerCause struct {
	slog.Handler
	told *told
}

// told counts the warnings of this minute, which began with a warning, and of the one before, by their causes.
type told struct {
	mu        sync.Mutex
	until     time.Time
	now, last map[string]int
}

func newOncePerCause(h slog.Handler) slog.Handler { return oncePerCause{Handler: h, told: &told{}} }

// Handle implements slog.Handler.
func (h oncePerCause) Handle(ctx context.Context, r slog.Record) error {
	if cause := causeOf(r); cause != "" {
		first, before := h.told.count(cause, r.Time)
		switch {
		case !first && !h.Enabled(ctx, slog.LevelDebug):
			return nil
		case !first:
			r.Level = slog.LevelDebug
		case before > 1:
			r = r.Clone()
			r.AddAttrs(slog.Int("times_before", before))
		}
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h oncePerCause) WithAttrs(attrs []slog.Attr) slog.Handler {
	return oncePerCause{h.Handler.WithAttrs(attrs), h.told}
}

// WithGroup implements slog.Handler.
func (h oncePerCause) WithGroup(name string) slog.Handler {
	return oncePerCause{h.Handler.WithGroup(name), h.told}
}

// causeOf returns what a warning has in common with others of its cause; "" for a record that is no such warning.
func causeOf(r slog.Record) string {
	if r.Level != slog.LevelWarn {
		return ""
	}
	failed, cause := false, r.Message
	r.Attrs(func(a slog.Attr) bool {
		err, is := a.Value.Any().(error)
		switch {
		case is:
			failed, cause = true, cause+"\n"+err.Error()
		case a.Key == "projection":
			cause += "\n" + a.Value.String()
		}
		return true
	})
	if !failed {
		return ""
	}
	return cause
}

// count reports whether a warning is the first of its cause in this minute, and how many the minute before had.
func (t *told) count(cause string, now time.Time) (first bool, before int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !now.Before(t.until) {
		t.now, t.last, t.until = map[string]int{}, t.now, now.Add(time.Minute)
	}
	t.now[cause]++
	return t.now[cause] == 1, t.last[cause]
}
