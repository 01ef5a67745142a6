// Package endpoint is what the clients of all vendors' models share: how they are
// configured and connected, and how a stream of theirs becomes an answer.
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
	// URL of the API, up to and with its version: https://api.openai.com/v1.
	URL string
	// Key may be empty.
	Key string
	// Name of the model.
	Name string
	// Idle ends an answer that has been silent for so long; 30 s by default.
	Idle time.Duration
}

// connections are kept open to an endpoint. The library's default is two, and every
// further stream would begin with a handshake.
const connections = 256

// Client returns a client of HTTP that keeps all its connections for the next calls.
func Client() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = connections, connections
	return &http.Client{Transport: hasty{t}}
}

// longest is how long an endpoint may ask to be left alone before it is tried again.
const longest = 5 * time.Second

// longestRefusal is how many bytes are read of an answer that is a refusal.
const longestRefusal = 1 << 20

// hasty keeps the vendors' libraries from waiting long before another try: somebody waits for the answer, and should
// learn that the endpoint refused. It also notes whatever an endpoint sends (watch).
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

// asksFor returns for how many seconds an endpoint asks to be left alone, in each of the forms that the libraries read.
func asksFor(h http.Header) float64 {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return ms / 1000
	}
	after := h.Get("Retry-After")
	if at, err := http.ParseTime(after); err == nil {
		return time.Until(at).Seconds()
	}
	seconds, _ := strconv.ParseFloat(after, 64) // none is no wait
	return seconds
}

// Stream of events, as the vendors' libraries give it.
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
	// Read returns the piece of text in an event, and why the answer ends with it, or "".
	Read func(E) (piece string, why services.Finish)
	// Status of a refusal by the endpoint, 0 for any other error.
	Status func(error) int
}

// Name implements chat.Model.
func (m *Model[E]) Name() string { return m.Config.Name }

// Format implements chat.Model.
func (m *Model[E]) Format() services.Format { return m.Form }

// Answer implements chat.Model. An error comes with what was said before it. It is ErrSilent, ErrBroken, ctx's or the
// vendor's, and its text says what failed, never what was sent or said.
func (m *Model[E]) Answer(ctx context.Context, p chat.Prompt, emit func(string)) (string, services.Finish, error) {
	ctx, end := watch(ctx, m.Idle)
	defer end()
	stream := m.Open(ctx, p)
	defer func() { _ = stream.Close() }()
	var text strings.Builder
	var why services.Finish
	for stream.Next() {
		piece, ended := m.Read(stream.Current())
		if piece != "" {
			text.WriteString(piece)
			emit(piece)
		}
		why = cmp.Or(why, ended)
	}
	err := stream.Err()
	switch cause := context.Cause(ctx); {
	case err != nil && cause != nil:
		err = &failure{cause.Error(), errors.Join(err, cause)}
	case err != nil:
		err = &failure{reason(err, m.Status(err)), err}
	case why == "":
		err = ErrBroken
	}
	return text.String(), why, err
}

var (
	// ErrSilent is the cause of a context that ended since nothing was heard.
	ErrSilent = errors.New("the model fell silent")
	// ErrBroken says that a stream ended before its answer did.
	ErrBroken = errors.New("the model's stream ended before its answer did")
)

// failure says of an error what an operator needs. The error's own text may hold what the endpoint answered, and so
// what a turn says.
type failure struct {
	why   string
	cause error
}

func (f *failure) Error() string { return f.why }
func (f *failure) Unwrap() error { return f.cause }

func reason(err error, status int) string {
	var unreachable net.Error
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return fmt.Sprintf("the endpoint answered %d: is TURNLEDGER_MODEL_KEY right?", status)
	case status == http.StatusNotFound:
		return fmt.Sprintf("the endpoint answered %d: are TURNLEDGER_MODEL_URL, up to its version, and "+
			"TURNLEDGER_MODEL_NAME right?", status)
	case status != 0:
		return fmt.Sprintf("the endpoint answered %d", status)
	case errors.As(err, &unreachable):
		return "the endpoint can't be reached: is TURNLEDGER_MODEL_URL right?"
	default:
		return "the endpoint's answer is broken"
	}
}

// patience is how long a model may say nothing, where nothing else is configured.
const patience = 30 * time.Second

// heardKey is where a call's context has the function that is called with each piece that comes.
type heardKey struct{}

// watch returns a context that ends when a call under it hears nothing for so long. The caller calls end when the
// stream is over.
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

// listening calls heard for whatever comes, also for the pings and comments that a model sends while it thinks, which
// the vendors' libraries do not report.
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
