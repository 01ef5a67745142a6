// Package endpoint is what the clients of all vendors' models share: their configuration, their connections, and how a
// vendor's stream becomes an answer.
package endpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/turnledger/turnledger/services"
	"github.com/turnledger/turnledger/services/chat"
)

// Config of a model behind an endpoint.
type Config struct {
	// URL of the API, including its version: https://api.openai.com/v1.
	URL string
	// Key may be empty.
	Key string
	// Name of the model.
	Name string
	// Idle bounds how long an answer may be silent before it is ended; 30 s by default.
	Idle time.Duration
	// Setting is the name of the URL's setting, for errors; TURNLEDGER_MODEL_URL by default.
	Setting string
}

// connections bounds the idle connections that are kept open to an endpoint. The library's default is two, so most
// streams would begin with a handshake.
const connections = 256

// Client returns an HTTP client that keeps its connections open for the next calls.
func Client() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = connections, connections
	return &http.Client{Transport: hasty{t}}
}

// longest bounds how long a retry waits when an endpoint asks for a pause.
const longest = 5 * time.Second

// longestRefusal bounds the bytes that are read of a response that is a refusal.
const longestRefusal = 1 << 20

// hasty keeps the vendors' libraries from waiting long before a retry: a user waits for the answer, and should learn
// that the endpoint refused. It also reports all that an endpoint sends to watch.
type hasty struct{ http.RoundTripper }

func (h hasty) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := h.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if asksFor(resp.Header) > longest.Seconds() {
		resp.Header.Set("X-Should-Retry", "false")
	}
	if resp.StatusCode >= http.StatusBadRequest {
		resp.Body = http.MaxBytesReader(nil, resp.Body, longestRefusal)
	}
	if heard, ok := r.Context().Value(heardKey{}).(func()); ok {
		resp.Body = listening{resp.Body, heard}
	}
	return resp, nil
}

// asksFor returns how many seconds an endpoint asks callers to wait, in any of the header forms that the libraries
// read.
func asksFor(h http.Header) float64 {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return ms / 1000
	}
	after := h.Get("Retry-After")
	if at, err := http.ParseTime(after); err == nil {
		return time.Until(at).Seconds()
	}
	seconds, _ := strconv.ParseFloat(after, 64) // without the header there is no wait
	return seconds
}

// Stream of events, as the vendors' libraries return it.
type Stream[E any] interface {
	Next() bool
	Current() E
	Err() error
	Close() error
}

// Model implements chat.Model with a vendor's library, whose events are E.
type Model[E any] struct {
	Config
	Form services.Format
	// Open calls the model. The messages are sent as they are.
	Open func(context.Context, chat.Prompt) Stream[E]
	// Read adds what an event brings to the answer.
	Read func(E, *Answering)
	// Status returns the HTTP status if an error is a refusal by the endpoint, else 0.
	Status func(error) int
	// TooLong reports whether an error is a refusal of a prompt that is longer than the model's context.
	TooLong func(error) bool
}

// Name implements chat.Model.
func (m *Model[E]) Name() string { return m.Config.Name }

// Format implements chat.Model.
func (m *Model[E]) Format() services.Format { return m.Form }

// Answer implements chat.Model. Together with an error it returns what came before the error. The error is ErrSilent,
// ErrBroken, ErrFailed, services.ErrPromptTooLong, ctx's or the vendor's. Its text says what failed, and never holds
// the prompt or the answer.
func (m *Model[E]) Answer(
	ctx context.Context, p chat.Prompt, emit func(services.AnswerPiece),
) (services.ModelAnswer, error) {
	ctx, end := watch(ctx, m.Idle)
	defer end()
	stream := m.Open(ctx, p)
	defer func() { _ = stream.Close() }()
	a := &Answering{Options: p.ModelOptions, emit: emit, index: map[string]int{}}
	for !a.failed && stream.Next() {
		m.Read(stream.Current(), a)
	}
	err := stream.Err()
	switch cause := context.Cause(ctx); {
	case err != nil && cause != nil:
		err = &failure{cause.Error(), errors.Join(err, cause)}
	case err != nil && m.TooLong(err):
		err = &failure{services.ErrPromptTooLong.Error(), errors.Join(services.ErrPromptTooLong, err)}
	case err != nil:
		err = &failure{m.reason(err, m.Status(err)), err}
	case a.failed:
		err = ErrFailed
	case a.why == "":
		err = ErrBroken
	}
	return a.answer(), err
}

var (
	// ErrSilent is the cause of a context that ended because the model sent nothing for too long.
	ErrSilent = errors.New("the model fell silent")
	// ErrBroken says that a stream ended before its answer did.
	ErrBroken = errors.New("the model's stream ended before its answer did")
	// ErrFailed says that the endpoint reported a failure within its stream.
	ErrFailed = errors.New("the endpoint reported that the model failed")
)

// failure reduces an error to what an operator needs. The error's own text may hold the endpoint's answer, and with it
// texts of a turn.
type failure struct {
	why   string
	cause error
}

func (f *failure) Error() string { return f.why }
func (f *failure) Unwrap() error { return f.cause }

func (m *Model[E]) reason(err error, status int) string {
	setting := strings.TrimSuffix(cmp.Or(m.Setting, "TURNLEDGER_MODEL_URL"), "_URL")
	var unreachable net.Error
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return fmt.Sprintf("the endpoint answered %d: is %s_KEY right?", status, setting)
	case status == http.StatusNotFound:
		return fmt.Sprintf("the endpoint answered %d: are %[2]s_URL, up to its version, and %[2]s_NAME right?",
			status, setting)
	case status != 0:
		return fmt.Sprintf("the endpoint answered %d", status)
	case errors.As(err, &unreachable):
		return "the endpoint can't be reached: is " + setting + "_URL right?"
	default:
		return "the endpoint's answer is broken"
	}
}

// patience is how long a model may send nothing, unless Config.Idle is set.
const patience = 30 * time.Second

// heardKey is the context key of the function that is called with each piece that arrives.
type heardKey struct{}

// watch returns a context that ends when a call under it receives nothing for as long as limit. The caller calls end
// when the stream is over.
func watch(ctx context.Context, limit time.Duration) (watched context.Context, end func()) {
	limit = cmp.Or(limit, patience)
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() { cancel(ErrSilent) })
	heard := func() { timer.Reset(limit) }
	return context.WithValue(ctx, heardKey{}, heard), func() {
		timer.Stop()
		cancel(nil)
	}
}

// listening calls heard for all that arrives, including the pings and comments that a model sends while it thinks. The
// vendors' libraries do not report those.
type listening struct {
	io.ReadCloser
	heard func()
}

func (l listening) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if n > 0 {
		l.heard()
	}
	return n, err
}
