package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/jetlog"
	"github.com/turnledger/turnledger/services"
)

// call is what the log line tells of a request. It is the request's context, too.
// For the goroutine that serves the request.
type call struct {
	context.Context
	remote   string
	mostBody int64 // in bytes
	caller   Caller
	session  string
	position events.Position
	from     services.Source
	turns    int
	err      error
	// prompt is set where a prompt was built: each of those is a line of the log.
	prompt *prompted
	steps  []step
}

// step is a part of a request that took its time.
type step struct {
	name string
	took time.Duration
}

// Took notes how long a part of a request took; it stands in the request's log line, as
// the name and "_duration". ctx is what a port was called with. For the goroutine that
// was called.
func Took(ctx context.Context, name string, took time.Duration) {
	c := callOf(ctx)
	c.steps = append(c.steps, step{name, took})
}

// prompted is what a prompt was built of.
type prompted struct {
	found           bool
	window, dropped int
}

type callKey struct{}

// Value gives the call itself for its own key.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// callOf gives the call of a handler's context.
func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{Context: ctx}
}

// source tells where a request came from without naming it, for the security audit.
func (a *API) source(ctx context.Context) string {
	host, _, err := net.SplitHostPort(callOf(ctx).remote)
	if err != nil {
		return ""
	}
	return events.HashIP(a.cfg.HashKey, host)
}

// answer is the response as the log line sees it.
type answer struct {
	http.ResponseWriter
	status int
}

// Unwrap lets http.ResponseController through.
func (w *answer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader notes the status.
func (w *answer) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *answer) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// finish ends a request: a panic becomes a problem, and what happened is counted and
// logged.
func (a *API) finish(w *answer, r *http.Request, c *call, began time.Time) {
	if p := recover(); p != nil {
		if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(p)
		}
		c.err = &panicked{kind: fmt.Sprintf("%T", p), stack: debug.Stack()}
		if w.status == 0 {
			problemOf(c.err).write(w)
		}
	}
	took := time.Since(began)
	route := r.Pattern
	if route == "" {
		route = "none"
	}
	a.metrics.observe(route, w.status, took)
	c.trace(route, w.status)
	a.log(w, c, route, took)
}

func (a *API) log(w *answer, c *call, route string, took time.Duration) {
	level := slog.LevelDebug
	if c.prompt != nil {
		level = slog.LevelInfo
	}
	switch {
	case w.status == http.StatusInternalServerError:
		level = slog.LevelError
	case w.status > http.StatusInternalServerError:
		level = slog.LevelWarn
	case w.status >= http.StatusBadRequest:
		level = slog.LevelInfo
	}
	if !a.cfg.Logger.Enabled(c, level) {
		return
	}
	kv := []any{"route", route, "status", w.status, "duration", took}
	if c.caller.Name != "" {
		kv = append(kv, "caller", c.caller.Name)
	}
	if c.session != "" {
		kv = append(kv, "session_id", c.session)
	}
	if c.position.Seq > 0 {
		kv = append(kv, "position", c.position.String())
	}
	if c.from != "" {
		kv = append(kv, "source", string(c.from))
	}
	if c.turns > 0 || c.prompt != nil {
		kv = append(kv, "turns", c.turns)
	}
	if p := c.prompt; p != nil {
		kv = append(kv, "found", p.found, "window", p.window, "dropped", p.dropped)
	}
	for _, s := range c.steps {
		kv = append(kv, s.name+"_duration", s.took)
	}
	if c.err != nil {
		kv = append(kv, "err", tellable(c.err))
	}
	a.cfg.Logger.Log(c, level, "request", kv...)
}

// tellable gives of an error what can't hold a text: our own words, those of the
// log and of the chat about its model, those of the network and of time, and of all
// others the types.
func tellable(err error) string {
	var p *problem
	if errors.As(err, &p) {
		if p.cause == nil {
			return p.Code
		}
		return p.Code + ": " + tellable(p.cause)
	}
	var broken *panicked
	if errors.As(err, &broken) {
		return broken.Error() + "\n" + string(broken.stack)
	}
	if errors.Is(err, services.ErrModelFailed) || errors.Is(err, jetlog.ErrUnavailable) ||
		errors.Is(err, jetlog.ErrStream) || errors.Is(err, jetlog.ErrTooLarge) {
		return err.Error()
	}
	return types(err)
}

// panicked is a panic of a handler. Its value may be a text; its type is none, and a
// stack holds no values.
type panicked struct {
	kind  string
	stack []byte
}

func (p *panicked) Error() string { return "panic: " + p.kind }

func types(err error) string {
	var network *net.OpError
	switch {
	case errors.As(err, &network):
		return network.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return context.DeadlineExceeded.Error()
	}
	out := fmt.Sprintf("%T", err)
	switch e := err.(type) { //nolint:errorlint // walks the tree
	case interface{ Unwrap() error }:
		if next := e.Unwrap(); next != nil {
			out += " > " + types(next)
		}
	case interface{ Unwrap() []error }:
		out += " > ("
		for i, next := range e.Unwrap() {
			if i > 0 {
				out += ", "
			}
			out += types(next)
		}
		out += ")"
	}
	return out
}
