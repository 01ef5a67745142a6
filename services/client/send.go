package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/pause"
)

// repetition says whether a request may be sent twice.
type repetition bool

// A request with sentOnce is never tried again if it may have arrived. A request with repeatable has no further effect
// the second time.
const (
	sentOnce   repetition = false
	repeatable repetition = true
)

// request is a call on its way.
type request struct {
	what, method, path string
	body               any
	retry              repetition
}

// call sends a request until it is answered or refused, or patience has run out, and returns the answer.
func call[T any](ctx context.Context, c *Client, r request) (out T, err error) {
	var body []byte
	if r.body != nil {
		if body, err = events.JSON(r.body); err != nil {
			return out, attempted(r.what, err)
		}
	}
	answer, err := backoff.Retry(ctx, func() ([]byte, error) {
		answer, err := c.send(ctx, r, body)
		return answer, r.classify(ctx, err)
	}, backoff.WithBackOff(pauses()), backoff.WithMaxTries(c.cfg.Tries), backoff.WithMaxElapsedTime(c.cfg.Patience))
	if err == nil {
		err = decode(answer, &out)
	}
	return out, attempted(r.what, err)
}

// callField is like call, but returns only one field of the answer.
func callField[T any](ctx context.Context, c *Client, name string, r request) (out T, err error) {
	answer, err := call[map[string]json.RawMessage](ctx, c, r)
	if raw := answer[name]; raw != nil {
		err = attempted(r.what, decode(raw, &out))
	}
	return out, err
}

// pauses returns the pauses between the attempts of a call.
func pauses() *backoff.ExponentialBackOff {
	return pause.Growing(25*time.Millisecond, 2*time.Second)
}

func decode(answer []byte, into any) error {
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return nil
}

// classify marks an error as permanent if a retry can't help or must not happen.
func (r request) classify(ctx context.Context, err error) error {
	p, isProblem := errors.AsType[*Error](err)
	switch {
	case err == nil:
		return nil
	case isProblem:
		// 429: the server did not look at this request, so it may be sent again.
		if !p.passing() || r.retry == sentOnce && p.Status != http.StatusTooManyRequests {
			return backoff.Permanent(err)
		}
		if p.retryAfter > 0 {
			return &patience{err, backoff.RetryAfterError{Duration: p.retryAfter}}
		}
		return err
	case r.retry == sentOnce, ctx.Err() != nil, errors.Is(err, ErrAnswerTooLarge):
		return backoff.Permanent(err)
	default:
		return err
	}
}

// patience adds to an error when to try again. Its text is the error's.
type patience struct {
	error
	wait backoff.RetryAfterError
}

func (p *patience) Unwrap() []error { return []error{p.error, &p.wait} }

func (c *Client) send(ctx context.Context, r request, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Attempt)
	defer cancel()
	var header http.Header
	if body != nil {
		header = http.Header{"Content-Type": {"application/json"}}
	}
	resp, err := c.open(ctx, r.method, r.path, bytes.NewReader(body), header)
	if err != nil {
		return nil, err
	}
	return c.readAll(resp)
}

// open sends one request without its own deadline. It returns a successful response, which the caller reads and closes;
// any other response is an error.
func (c *Client) open(
	ctx context.Context, method, path string, body io.Reader, header http.Header,
) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, backoff.Permanent(err)
	}
	maps.Copy(req.Header, header)
	if c.cfg.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.cfg.Key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, withoutURL(err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	answer, err := c.readAll(resp)
	if err != nil {
		return nil, err
	}
	return nil, problemIn(resp, answer)
}

// readAll reads a response to its end and closes it.
func (c *Client) readAll(resp *http.Response) ([]byte, error) {
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, c.cfg.MaxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case int64(len(answer)) > c.cfg.MaxAnswer:
		return nil, ErrAnswerTooLarge
	}
	return answer, nil
}

// withoutURL removes the URL, which holds ids, from an error of net/http.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}
