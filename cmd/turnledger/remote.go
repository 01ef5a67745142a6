package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// remote is where a verb finds the running server.
type remote struct {
	URL string `help:"The running server." default:"http://127.0.0.1:8480" env:"TURNLEDGER_URL"`
	Key string `help:"Key for the server." env:"TURNLEDGER_KEY"`
}

// call sends a request and reads the answer into out; raw is the answer as it
// came. A problem is an error with what the server said.
func (r remote) call(ctx context.Context, method, path string, body, out any) (raw json.RawMessage, err error) {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.URL+path, in)
	if err != nil {
		return nil, fmt.Errorf("%w: --url: %w", errUsage, err)
	}
	if r.Key != "" {
		req.Header.Set("Authorization", "Bearer "+r.Key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, &unreachableError{r.URL, err}
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err = io.ReadAll(resp.Body)
	if err != nil {
		return nil, &unreachableError{r.URL, err}
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return nil, problemOf(resp.StatusCode, raw)
	}
	return raw, json.Unmarshal(raw, out)
}

// unreachableError: there is no server to talk to.
type unreachableError struct {
	url string
	err error
}

func (e *unreachableError) Error() string {
	return fmt.Sprintf("no server answers at %s: %v (start one with: turnledger dev, or set TURNLEDGER_URL)", e.url, errors.Unwrap(e.err))
}

func (e *unreachableError) Unwrap() error { return e.err }

func problemOf(status int, raw []byte) error {
	var p struct {
		Code   string `json:"code"`
		Detail string `json:"detail"`
		Errors []struct {
			Location string `json:"location"`
			Message  string `json:"message"`
		} `json:"errors"`
	}
	if json.Unmarshal(raw, &p) != nil || p.Code == "" {
		return fmt.Errorf("the server answered with status %d and no problem of Turnledger's: is it another server?", status)
	}
	return fmt.Errorf("%s: %s", p.Code, p.Detail)
}
