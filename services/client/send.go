package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// request is a call on its way. again says that it may be sent twice.
type request struct {
	what, method, path string
	body               any
	again              bool
}

// do sends a request until it is answered, refused, or no patience is left, and
// reads the answer into out.
func (c *Client) do(ctx context.Context, r request, out any) error {
	var body []byte
	if r.body != nil {
		var err error
		if body, err = encode(r.body); err != nil {
			return attempted(r.what, err)
		}
	}
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 25*time.Millisecond, 2*time.Second
	answer, err := backoff.Retry(ctx, func() ([]byte, error) {
		answer, err := c.send(ctx, r, body)
		return answer, r.classify(ctx, err)
	}, backoff.WithBackOff(pause), backoff.WithMaxTries(c.cfg.Tries), backoff.WithMaxElapsedTime(c.cfg.Patience))
	if err != nil {
		return attempted(r.what, err)
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return attempted(r.what, fmt.Errorf("%w: %w", ErrAnswer, err))
	}
	return nil
}

// classify marks what trying again can't mend, or must not.
func (r request) classify(ctx context.Context, err error) error {
	var p *Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &p):
		// Too many requests: this one was not looked at.
		if !p.passing() || !r.again && p.Status != http.StatusTooManyRequests {
			return backoff.Permanent(err)
		}
		if p.retryAfter > 0 {
			return &patience{err, backoff.RetryAfterError{Duration: p.retryAfter}}
		}
		return err
	case !r.again, ctx.Err() != nil, errors.Is(err, ErrAnswerTooLarge):
		return backoff.Permanent(err)
	default:
		return err
	}
}

// patience is an error that says when to come back. It reads as the error alone.
type patience struct {
	error
	wait backoff.RetryAfterError
}

func (p *patience) Unwrap() []error { return []error{p.error, &p.wait} }

func (c *Client) send(ctx context.Context, r request, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Attempt)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.method, c.base+r.path, bytes.NewReader(body))
	if err != nil {
		return nil, backoff.Permanent(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.cfg.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.cfg.Key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, withoutURL(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, c.cfg.MaxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case int64(len(answer)) > c.cfg.MaxAnswer:
		return nil, ErrAnswerTooLarge
	case resp.StatusCode/100 != 2:
		return nil, problemIn(resp, answer)
	default:
		return answer, nil
	}
}

// withoutURL takes the URL, which holds ids, out of an error of net/http.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// encode writes JSON without escaping what HTML would need.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
