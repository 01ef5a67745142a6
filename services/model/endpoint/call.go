package endpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/tmaxmax/go-sse"

	"github.com/turnledger/turnledger/events/pause"
	"github.com/turnledger/turnledger/services"
)

// Refusal is an endpoint's answer that refuses a call. Its text holds no more than the status: an endpoint may repeat
// the prompt in its words.
type Refusal struct {
	// ModelRefusal has the endpoint's names as they came.
	services.ModelRefusal

	Message string
}

func (r *Refusal) Error() string { return "the endpoint answered " + strconv.Itoa(r.Status) }

// Unwrap tells how long to wait before the call is made again.
func (r *Refusal) Unwrap() error {
	if r.After > 0 {
		return &backoff.RetryAfterError{Duration: r.After}
	}
	return nil
}

// StatusOf returns the status with which an endpoint refused a call, or 0 for any other error.
func StatusOf(err error) int {
	if refused, is := errors.AsType[*Refusal](err); is {
		return refused.Status
	}
	return 0
}

// Unfit reports whether an endpoint refuses a call for what is in it, such as a text that is too long.
func Unfit(err error) bool {
	return slices.Contains([]int{
		http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity,
	}, StatusOf(err))
}

// unanswered is a call that got no answer. Its text holds no URL, which may name an identity or have a key in it.
type unanswered struct{ error }

func (u unanswered) Error() string {
	inner := u.error
	if of, is := errors.AsType[*url.Error](inner); is {
		inner = of.Err
	}
	if errors.Is(inner, context.DeadlineExceeded) {
		return "the endpoint did not answer in time"
	}
	return "the endpoint did not answer: " + inner.Error()
}

func (u unanswered) Unwrap() error { return u.error }

// Caller calls an endpoint. Safe for concurrent use.
type Caller struct {
	// Header goes with each call.
	Header http.Header

	url    string
	client *http.Client
}

// NewCaller returns what calls the API at an address, as OpenAI's is called: with a key, unless that is empty. timeout
// bounds each try of a call with its answer; 0: no bound.
func NewCaller(address, key string, timeout time.Duration) Caller {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = connections, connections
	c := Caller{
		Header: http.Header{"Content-Type": {"application/json"}}, url: strings.TrimRight(address, "/"),
		client: &http.Client{Transport: reporting{t}, Timeout: timeout},
	}
	if key != "" {
		c.Header.Set("Authorization", "Bearer "+key)
	}
	return c
}

const (
	// tries bounds how often a call is made that may succeed later, and longest its pauses.
	tries      = 3
	firstPause = 500 * time.Millisecond
	longest    = 5 * time.Second
	// longestAnswer bounds the bytes of an answer, and those of an event of one that is a stream.
	longestAnswer = 64 << 20
	// longestRefusal bounds the bytes that are read of a response that is a refusal.
	longestRefusal = 1 << 20
	// connections bounds the idle connections that are kept open to an endpoint. The library's default is two, so most
	// streams would begin with a handshake.
	connections = 256
)

// begin makes a call, with a body unless that is nil, and makes it again if it may succeed later. It fails with a
// *Refusal if the endpoint refuses.
func (c Caller) begin(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var raw []byte
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	return backoff.Retry(ctx, func() (*http.Response, error) {
		resp, err := c.once(ctx, method, path, raw)
		refused, is := errors.AsType[*Refusal](err)
		if is && (refused.After > longest || !again(refused.Status)) {
			err = backoff.Permanent(err)
		}
		return resp, err
	}, backoff.WithBackOff(pause.Growing(firstPause, longest)), backoff.WithMaxTries(tries))
}

// again reports whether a call may succeed later that an endpoint refused with a status.
func again(status int) bool {
	return status == http.StatusRequestTimeout || status == http.StatusConflict ||
		status == http.StatusTooManyRequests || status >= http.StatusInternalServerError
}

func (c Caller) once(ctx context.Context, method, path string, raw []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(raw))
	if err != nil {
		return nil, unanswered{err}
	}
	r.Header = c.Header.Clone()
	resp, err := c.client.Do(r)
	if err != nil {
		return nil, unanswered{err}
	}
	if resp.StatusCode < http.StatusMultipleChoices {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	return nil, refusal(resp)
}

// refusal reads an answer that is one, as far as it can be read.
func refusal(resp *http.Response) *Refusal {
	out := &Refusal{ModelRefusal: services.ModelRefusal{
		Status: resp.StatusCode, After: time.Duration(asksFor(resp.Header) * float64(time.Second)),
	}}
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, longestRefusal)) // without it the status says enough
	var body struct {
		Error struct {
			Type    string
			Code    json.RawMessage
			Param   json.RawMessage
			Message string
		}
	}
	_ = json.Unmarshal(raw, &body) // another form has no names
	out.Type, out.Message = body.Error.Type, body.Error.Message
	out.Code = strings.Trim(string(body.Error.Code), `"`)
	out.Param = strings.Trim(string(body.Error.Param), `"`)
	return out
}

// asksFor returns how many seconds an endpoint asks callers to wait, in any of the forms that vendors' libraries read.
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

// Call makes a call, with a body unless that is nil, and returns its answer. It is made again if it may succeed later,
// and fails with a *Refusal if the endpoint refuses. Texts of errors hold neither the URL nor what the endpoint said.
func (c Caller) Call(ctx context.Context, method, path string, body any) ([]byte, error) {
	resp, err := c.begin(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	return read(resp)
}

func read(resp *http.Response) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, longestAnswer)) // what is cut off is no JSON
	if err != nil {
		return nil, unanswered{err}
	}
	return raw, nil
}

// Events makes a call whose answer is a stream, and returns the data of its events. An answer that is no stream is one
// event. Comments and events without data are left out.
func (c Caller) Events(ctx context.Context, path string, body any) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		resp, err := c.begin(ctx, http.MethodPost, path, body)
		if err != nil {
			yield(nil, err)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "application/json" {
			raw, err := read(resp)
			yield(raw, err)
			return
		}
		for e, err := range sse.Read(resp.Body, &sse.ReadConfig{MaxEventSize: longestAnswer}) {
			if err == nil && strings.TrimSpace(e.Data) == "" {
				continue
			}
			if !yield(json.RawMessage(e.Data), err) || err != nil {
				return
			}
		}
	}
}

// errNoJSON says that an event is not JSON.
var errNoJSON = errors.New("an event of the endpoint is no JSON")

// Decode reads an event into a value. A member of an odd type leaves the rest readable.
func Decode(raw json.RawMessage, into any) error {
	if !json.Valid(raw) {
		return errNoJSON
	}
	_ = json.Unmarshal(raw, into) // it is JSON, so all else is read
	return nil
}
