package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/turnledger/turnledger/services/access"
)

// Call collects what the log line and the span of a request say. It is also the request's context.
// Only the goroutine that serves the request may use it.
type Call struct {
	context.Context

	// Caller is the zero value where nobody is authenticated.
	Caller access.Caller
	// Remote is the address that the request came from.
	Remote string

	surface   *Surface
	notes     []note
	room      [8]note // for notes
	steps     []any   // names and durations
	err       error
	prominent bool
}

// note is an attribute of the log line.
type note struct {
	key   string
	value any
}

// Note puts an attribute into the log line, and with "turnledger." before its key into the span;
// one that has the key already is replaced. The value is a string, an int, a bool or a
// fmt.Stringer, and never a text of a client.
func (c *Call) Note(key string, value any) {
	if c.notes == nil {
		c.notes = c.room[:0]
	}
	for i := range c.notes {
		if c.notes[i].key == key {
			c.notes[i].value = value
			return
		}
	}
	c.notes = append(c.notes, note{key, value})
}

// Failed notes the error that the call ended with.
func (c *Call) Failed(err error) { c.err = err }

// Prominent makes the log line of a call that went well one of level info.
func (c *Call) Prominent() { c.prominent = true }

// Took notes how long a part of a request took. The log line has it as the name and
// "_duration". ctx is the context that a port was called with. Only the goroutine that
// serves the request may call it.
func Took(ctx context.Context, name string, took time.Duration) {
	c := CallOf(ctx)
	c.steps = append(c.steps, name+"_duration", took)
}

type callKey struct{}

// Value returns the call itself for its own key.
func (c *Call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// CallOf returns the call of a handler's context.
func CallOf(ctx context.Context) *Call {
	if c, ok := ctx.Value(callKey{}).(*Call); ok {
		return c
	}
	return &Call{Context: ctx}
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

// finish ends a request: a panic is refused as any error is, and what happened is counted and
// logged.
func (a *API) finish(w *answer, r *http.Request, c *Call, began time.Time) {
	if p := recover(); p != nil {
		if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(p)
		}
		c.err = &panicked{kind: fmt.Sprintf("%T", p), stack: debug.Stack()}
		if w.status == 0 {
			c.surface.Refuse(w, r, c.err)
		}
	}
	took := time.Since(began)
	route := cmp.Or(r.Pattern, "none")
	a.metrics.observe(route, w.status, took)
	c.trace(route, w.status)
	a.log(w, c, route, took)
}

func (a *API) log(w *answer, c *Call, route string, took time.Duration) {
	level := levelOf(w.status, c.prominent)
	if !a.cfg.Logger.Enabled(c, level) {
		return
	}
	kv := []any{"route", route, "status", w.status, "duration", took}
	if c.Caller.Name != "" {
		kv = append(kv, "caller", c.Caller.Name)
	}
	for _, n := range c.notes {
		kv = append(kv, n.key, plain(n.value))
	}
	kv = append(kv, c.steps...)
	if c.err != nil {
		kv = append(kv, "err", c.surface.Tell(c.err))
	}
	a.cfg.Logger.Log(c, level, "request", kv...)
}

func levelOf(status int, prominent bool) slog.Level {
	switch {
	case status == http.StatusInternalServerError:
		return slog.LevelError
	case status > http.StatusInternalServerError:
		return slog.LevelWarn
	case status >= http.StatusBadRequest, prominent:
		return slog.LevelInfo
	default:
		return slog.LevelDebug
	}
}

// plain returns the text of a value that has one.
func plain(v any) any {
	if s, ok := v.(fmt.Stringer); ok {
		return s.String()
	}
	return v
}

// Tell describes an error without any text of a client: a panic by its stack, errors of the network and of deadlines
// by their own text, and all others by their types.
func Tell(err error) string {
	var broken *panicked
	if errors.As(err, &broken) {
		return broken.Error() + "\n" + string(broken.stack)
	}
	return types(err)
}

// panicked is a panic of a handler. The value of a panic may be a client's text; its type
// and the stack are not.
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
