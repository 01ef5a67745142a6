package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/services/client"
)

// remote is the address of the running server.
type remote struct {
	URL  string `help:"The running server." default:"http://127.0.0.1:8480" env:"TURNLEDGER_URL"`
	Key  string `help:"Key for the server." env:"TURNLEDGER_KEY"`
	JSON bool   `help:"Machine output."`

	tries uint // of one call; 1 by default
}

// firstTries is how often a verb tries a call when it should find out quickly that there is no server.
const firstTries = 8

// dial runs do with a client that tries each call at most tries times.
func (r remote) dial(tries uint, do func(*client.Client) error) error {
	return r.dialThrough(nil, tries, do)
}

func (r remote) dialThrough(t http.RoundTripper, tries uint, do func(*client.Client) error) error {
	s, err := client.New(client.Config{URL: r.URL, Key: r.Key, Tries: tries, Transport: t})
	if err != nil {
		return fmt.Errorf("%w: --url: %w", config.ErrUsage, err)
	}
	defer s.Close()
	return do(s)
}

// dialTwice runs do with two clients. first is for calls before the server has answered once, later for all calls after
// that. later outlasts a restart of the server: the number of its attempts is so high that only the client's patience
// of a minute ends them.
func (r remote) dialTwice(do func(first, later *client.Client) error) error {
	return r.dial(firstTries, func(first *client.Client) error {
		return r.dial(1000, func(later *client.Client) error { return do(first, later) })
	})
}

// ask makes one call to the server. With --json it prints the answer as it came; otherwise it calls show.
func ask[T any](e *Env, r remote, call func(*client.Client) (T, error), show func(T)) error {
	answer := &lastAnswer{}
	return r.dialThrough(answer, max(r.tries, 1), func(s *client.Client) error {
		got, err := call(s)
		switch {
		case err != nil:
			return r.explain(e.Ctx, err)
		case r.JSON:
			_, _ = fmt.Fprintf(e.Out, "%s\n", bytes.TrimSpace(answer.body)) // as it came
		default:
			show(got)
		}
		return nil
	})
}

// lastAnswer is a transport that keeps the last answer.
type lastAnswer struct{ body []byte }

// RoundTrip implements http.RoundTripper.
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

// explain adds to an error of the client what to do about it.
func (r remote) explain(ctx context.Context, err error) error {
	problem, answered := errors.AsType[*client.Error](err)
	switch {
	case err == nil, ctx.Err() != nil:
		return err
	case answered && problem.Code == "":
		return fmt.Errorf("what answers at %s with status %d is not Turnledger: check --url", r.URL, problem.Status)
	case answered, errors.Is(err, client.ErrAnswer):
		return err
	default:
		return fmt.Errorf("no server answers at %s: %w (start one with: turnledger dev, or set TURNLEDGER_URL)", r.URL,
			err)
	}
}

// lookEvery is the pause between two polls of a server.
const lookEvery = 200 * time.Millisecond

// Counted returns a number with its noun. The noun is in the plural unless the number is 1.
func Counted[N int | int64 | uint64](n N, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprint(n, " ", of, "s")
}
