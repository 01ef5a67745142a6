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
	"slices"
	"strings"
	"time"

	"github.com/turnledger/turnledger/services/access"
)

// Call collects the content of a request's log line and span. It is also the request's context. Only the goroutine that
// serves the request may use it.
type Call struct {
	context.Context

	access.Call

	surface    *Surface
	attributes []callAttribute
	room       [8]callAttribute // for attributes
	steps      []any            // names and durations
	err        error
	prominent  bool
}

// callAttribute is an attribute of the log line.
type callAttribute struct {
	key   string
	value any
}

// SetAttribute puts an attribute into the log line, and with the prefix "turnledger." into the span. It replaces an
// attribute with the same key. The value is a string, an int, a bool or a fmt.Stringer, and never a text from a client.
func (c *Call) SetAttribute(key string, value any) {
	if c.attributes == nil {
		c.attributes = c.room[:0]
	}
	for i := range c.attributes {
		if c.attributes[i].key == key {
			c.attributes[i].value = value
			return
		}
	}
	c.attributes = append(c.attributes, callAttribute{key, value})
}

// Failed notes the error that the call ended with.
func (c *Call) Failed(err error) { c.err = err }

// Prominent raises the log line of a successful call to level info.
func (c *Call) Prominent() { c.prominent = true }

type callKey struct{}

// Value returns the call itself for its own key, and what services know of it for theirs.
func (c *Call) Value(key any) any {
	switch key {
	case callKey{}:
		return c
	case access.CallKey{}:
		return &c.Call
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

// answer wraps the response, and records what the log line says about it.
type answer struct {
	http.ResponseWriter

	status int
	// call, if set, must be admitted before it is answered.
	call *Call
}

// Unwrap makes http.ResponseController work.
func (w *answer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader notes the status.
func (w *answer) WriteHeader(status int) {
	if w.status == 0 {
		if status < http.StatusBadRequest && w.call != nil && !w.call.Admitted {
			panic("wire: the call was answered and never admitted")
		}
		w.status = status
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *answer) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// finish ends a request: it turns a panic into a refusal, and counts and logs the request.
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
	took, status := time.Since(began), c.counted(w.status)
	route := cmp.Or(r.Pattern, "none")
	a.metrics.observe(route, status, took)
	c.trace(route, status)
	a.log(status, c, route, took)
}

// clientGone is the status under which a request is counted if it failed because its client had gone. It is never sent.
const clientGone = 499

// counted returns the status for a request's metrics, log line and span: the status of its answer, or clientGone.
func (c *Call) counted(status int) int {
	gone := errors.Is(c.Err(), context.Canceled) && errors.Is(c.err, context.Canceled)
	if gone && status >= http.StatusInternalServerError {
		return clientGone
	}
	return status
}

func (a *API) log(status int, c *Call, route string, took time.Duration) {
	level := levelOf(status, c.prominent)
	if !a.cfg.Logger.Enabled(c, level) {
		return
	}
	kv := []any{"route", route, "status", status, "duration", took}
	if c.Caller.Name != "" {
		kv = append(kv, "caller", c.Caller.Name)
	}
	for _, n := range c.attributes {
		kv = append(kv, n.key, plain(n.value))
	}
	kv = append(kv, c.steps...)
	if c.err != nil {
		kv = append(kv, "err", c.surface.SafeText(c.err))
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

// plain returns a value's text, if it has one.
func plain(v any) any {
	if s, ok := v.(fmt.Stringer); ok {
		return s.String()
	}
	return v
}

// SafeText describes an error without any text from a client: a panic by its stack, and all others by what their parts
// say that can hold none: those that are known, the network's, and PostgreSQL's by their codes; by a type where no part
// does.
func SafeText(err error, known ...error) string {
	if broken, is := errors.AsType[*panicked](err); is {
		return broken.Error() + "\n" + string(broken.stack)
	}
	if said := words(err, slices.Concat(known, []error{context.DeadlineExceeded, context.Canceled})); len(said) > 0 {
		return strings.Join(said, ": ")
	}
	for next := err; next != nil; next = errors.Unwrap(next) {
		err = next
	}
	return fmt.Sprintf("%T", err)
}

// panicked is a panic of a handler. It keeps the type of the panic's value and the stack, since the value itself may be
// a client's text.
type panicked struct {
	kind  string
	stack []byte
}

func (p *panicked) Error() string { return "panic: " + p.kind }

// words returns what the parts of an error say that can hold no text of a client, each once.
func words(err error, known []error) (said []string) {
	if slices.Contains(known, err) {
		return []string{err.Error()}
	}
	if marked, ok := err.(interface{ Is(error) bool }); ok {
		for _, k := range known {
			if marked.Is(k) {
				said = append(said, k.Error())
			}
		}
	}
	var more []string
	switch e := err.(type) { //nolint:errorlint // walks the tree
	case *net.OpError:
		more = []string{e.Error()}
	case interface{ SafeText() string }:
		more = []string{e.SafeText()}
	case interface{ SQLState() string }:
		more = []string{"SQLSTATE " + e.SQLState()}
	case interface{ Unwrap() error }:
		more = words(e.Unwrap(), known)
	case interface{ Unwrap() []error }:
		for _, next := range e.Unwrap() {
			more = append(more, words(next, known)...)
		}
	}
	for _, one := range more {
		if !slices.Contains(said, one) {
			said = append(said, one)
		}
	}
	return said
}
