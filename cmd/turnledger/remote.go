package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/turnledger/turnledger/services/client"
)

// remote is where a verb finds the running server.
type remote struct {
	URL  string `help:"The running server." default:"http://127.0.0.1:8480" env:"TURNLEDGER_URL"`
	Key  string `help:"Key for the server." env:"TURNLEDGER_KEY"`
	JSON bool   `help:"Machine output."`
}

// dial gives a client that tries each call so many times.
func (r remote) dial(tries uint, transport http.RoundTripper) (*client.Client, error) {
	c, err := client.New(client.Config{URL: r.URL, Key: r.Key, Tries: tries, Transport: transport})
	if err != nil {
		return nil, fmt.Errorf("%w: --url: %w", errUsage, err)
	}
	return c, nil
}

// ask makes one call of the server. With --json it prints the answer as it came, else
// as show does.
func ask[T any](e *env, r remote, call func(*client.Client) (T, error), show func(T) error) error {
	answer := &lastAnswer{}
	c, err := r.dial(1, answer)
	if err != nil {
		return err
	}
	defer c.Close()
	got, err := call(c)
	switch {
	case err != nil:
		return r.explain(e.ctx, err)
	case r.JSON:
		_, err = fmt.Fprintf(e.out, "%s\n", bytes.TrimSpace(answer.body))
		return err
	default:
		return show(got)
	}
}

// lastAnswer is a transport that keeps the last answer.
type lastAnswer struct{ body []byte }

func (l *lastAnswer) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	l.body, err = io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(l.body))
	return resp, err
}

// errUnreachable: there is no server to talk to.
var errUnreachable = errors.New("no server answers")

// explain says what to do about an error of the client.
func (r remote) explain(ctx context.Context, err error) error {
	var problem *client.Error
	switch {
	case err == nil, ctx.Err() != nil:
		return err
	case errors.As(err, &problem) && problem.Code == "":
		return fmt.Errorf("what answers at %s with status %d is not Turnledger: check --url", r.URL, problem.Status)
	case problem != nil, errors.Is(err, client.ErrAnswer):
		return err
	default:
		return fmt.Errorf("%w at %s: %w (start one with: turnledger dev, or set TURNLEDGER_URL)", errUnreachable, r.URL, err)
	}
}
