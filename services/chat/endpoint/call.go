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
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/tmaxmax/go-sse"
)

// Refusal is an endpoint's answer that refuses a call. Its text holds no more than the status: an endpoint may repeat
// the prompt in its words.
type Refusal struct {
	Status int
	// After is how long the endpoint asks its callers to wait; 0 if it does not say.
	After time.Duration
	// Type, Code and Message are the endpoint's.
	Type, Code, Message string
}

func (r *Refusal) Error() string { return "the endpoint answered " + strconv.Itoa(r.Status) }

// Caller calls an endpoint.
type Caller struct {
	// URL is that of the API, and Header goes with each call.
	URL    string
	Header http.Header
	Client *http.Client
}

const (
	// tries bounds how often a call is made that may succeed later, and longest its pauses.
	tries      = 3
	firstPause = 500 * time.Millisecond
	// longestEvent bounds the bytes of one event of an answer.
	longestEvent = 64 << 20
)

// Post makes a call, and makes it again if it may succeed later. It fails with a *Refusal if the endpoint refuses.
func (c Caller) Post(ctx context.Context, path string, body any) (*http.Response, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = firstPause, longest
	return backoff.Retry(ctx, func() (*http.Response, error) {
		resp, err := c.post(ctx, path, raw)
		refused, is := errors.AsType[*Refusal](err)
		switch {
		case err == nil, !is && ctx.Err() == nil:
			return resp, err
		case !is, refused.After > longest, !again(refused.Status):
			return nil, backoff.Permanent(err)
		case refused.After > 0:
			return nil, errors.Join(&backoff.RetryAfterError{Duration: refused.After}, err)
		}
		return nil, err
	}, backoff.WithBackOff(pauses), backoff.WithMaxTries(tries))
}

// again reports whether a call may succeed later that an endpoint refused with a status.
func again(status int) bool {
	return status == http.StatusRequestTimeout || status == http.StatusConflict ||
		status == http.StatusTooManyRequests || status >= http.StatusInternalServerError
}

func (c Caller) post(ctx context.Context, path string, raw []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(
		ctx, http.MethodPost, strings.TrimRight(c.URL, "/")+path, bytes.NewReader(raw),
	)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	for name, values := range c.Header {
		r.Header[name] = values
	}
	resp, err := c.Client.Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < http.StatusBadRequest {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	return nil, refusal(resp)
}

// refusal reads an answer that is one, as far as it can be read.
func refusal(resp *http.Response) *Refusal {
	out := &Refusal{Status: resp.StatusCode, After: time.Duration(asksFor(resp.Header) * float64(time.Second))}
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, longestRefusal)) // without it the status says enough
	var body struct {
		Error struct {
			Type    string
			Code    json.RawMessage
			Message string
		}
	}
	_ = json.Unmarshal(raw, &body) // another form has no names
	out.Type, out.Message = body.Error.Type, body.Error.Message
	out.Code = strings.Trim(string(body.Error.Code), `"`)
	return out
}

// Events makes a call whose answer is a stream, and returns the data of its events. An answer that is no stream is one
// event. Comments and events without data are left out.
func (c Caller) Events(ctx context.Context, path string, body any) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		resp, err := c.Post(ctx, path, body)
		if err != nil {
			yield(nil, err)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "application/json" {
			raw, err := io.ReadAll(io.LimitReader(resp.Body, longestEvent))
			yield(raw, err)
			return
		}
		for e, err := range sse.Read(resp.Body, &sse.ReadConfig{MaxEventSize: longestEvent}) {
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
