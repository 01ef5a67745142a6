// Package endpoint calls endpoints over HTTP, and is what the clients of all vendors' models share: their
// configuration, and how a vendor's stream becomes an answer.
package endpoint

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/turnledger/turnledger/services"
)

// Config of a model behind an endpoint.
type Config struct {
	// URL of the API, including its version: https://api.openai.com/v1.
	URL string
	// Key may be empty.
	Key string
	// Name of the model.
	Name string
	// MaxTokens bounds an answer whose caller names no bound; 0 leaves it to the model.
	MaxTokens int64
	// Idle bounds how long an answer may be silent before it is ended; 30 s by default.
	Idle time.Duration
	// Setting is the name of the URL's setting, for errors; TURNLEDGER_MODEL_URL by default.
	Setting string
}

// reporting reports all that an endpoint sends to watch.
type reporting struct{ http.RoundTripper }

func (h reporting) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := h.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if heard, ok := r.Context().Value(heardKey{}).(func()); ok {
		resp.Body = listening{resp.Body, heard}
	}
	return resp, nil
}

// Model implements services.Model over an endpoint of some vendor.
type Model struct {
	Config
	Form services.Format
	// Open calls the model and returns the events of its answer. The messages are sent as they are.
	Open func(context.Context, services.Prompt) iter.Seq2[json.RawMessage, error]
	// Read returns what reads the events of one answer.
	Read func(*Answering) Reader
	// TooLong reports whether the endpoint refused a prompt that is longer than the model's context.
	TooLong func(*Refusal) bool
}

// Reader adds what an event brings to its answer. It fails if the event can't be read.
type Reader func(json.RawMessage) error

// EachEvent returns the Read of a model whose events are read one by one.
func EachEvent[E any](read func(*E, *Answering)) func(*Answering) Reader {
	return func(a *Answering) Reader {
		return func(raw json.RawMessage) error {
			var e E
			err := Decode(raw, &e)
			if err == nil {
				read(&e, a)
			}
			return err
		}
	}
}

// Name implements services.Model.
func (m *Model) Name() string { return m.Config.Name }

// Format implements services.Model.
func (m *Model) Format() services.Format { return m.Form }

// Answer implements services.Model. Together with an error it returns what came before the error. The error is
// ErrSilent, ErrBroken, ErrFailed, services.ErrPromptTooLong, *services.ModelRefusal, ctx's or the connection's. Its
// text says what failed, and never holds the prompt or the answer.
func (m *Model) Answer(
	ctx context.Context, p services.Prompt, emit func(services.AnswerPiece),
) (services.ModelAnswer, error) {
	ctx, end := watch(ctx, m.Idle)
	defer end()
	p.MaxTokens = cmp.Or(p.MaxTokens, m.MaxTokens)
	a := &Answering{Options: p.ModelOptions, Messages: p.Messages, emit: emit, index: map[string]int{}}
	err := m.receive(ctx, p, a)
	refused, isRefusal := errors.AsType[*Refusal](err)
	switch cause := context.Cause(ctx); {
	case err != nil && cause != nil:
		err = &failure{cause.Error(), errors.Join(err, cause)}
	case isRefusal && m.TooLong(refused):
		err = &failure{services.ErrPromptTooLong.Error(), errors.Join(services.ErrPromptTooLong, err)}
	case isRefusal:
		told := refused.ModelRefusal
		told.Type, told.Code, told.Param = name(told.Type), name(told.Code), name(told.Param)
		err = &failure{m.reason(err, refused.Status), &told}
	case err != nil:
		err = &failure{m.reason(err, 0), err}
	case a.failed:
		err = ErrFailed
	case a.why == "":
		err = ErrBroken
	}
	return a.answer(), err
}

// named matches what an endpoint names: a word or a path of members, and no text of a prompt.
var named = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.\[\]-]{0,63}$`)

// name returns a name of an endpoint, or "".
func name(of string) string {
	if of == "null" || !named.MatchString(of) {
		return ""
	}
	return of
}

// receive reads the events of an answer, until the endpoint says that it failed.
func (m *Model) receive(ctx context.Context, p services.Prompt, a *Answering) error {
	read := m.Read(a)
	for event, err := range m.Open(ctx, p) {
		if err == nil {
			err = read(event)
		}
		if err != nil {
			return err
		}
		if a.failed {
			break
		}
	}
	return ctx.Err()
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

func (m *Model) reason(err error, status int) string {
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
