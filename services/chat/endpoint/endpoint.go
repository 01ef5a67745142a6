// Package endpoint is what the clients of all vendors' models share: how they are
// configured and connected, and how a stream of theirs becomes an answer.
package endpoint

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/turnledger/turnledger/services"
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

// Client gives a client of HTTP whose connections are used again, all of them.
func Client() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = connections, connections
	return &http.Client{Transport: hasty{t}}
}

// longest is how long an endpoint may ask to be left alone before it is tried again.
const longest = 5 * time.Second

// longestRefusal is how many bytes are read of an answer that is a refusal.
const longestRefusal = 1 << 20

// hasty keeps the vendors' libraries from waiting for another try: somebody waits for the
// answer, and is to hear that the endpoint refused. It hears what an endpoint says.
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

// asksFor gives for how many seconds an endpoint asks to be left alone, in each of the
// forms that the libraries read.
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

// Call of a vendor's model.
type Call[E any] struct {
	Open func(context.Context) Stream[E]
	// Read tells of an event the piece of text in it, and why the answer ends with it, or "".
	Read func(E) (piece string, why services.Finish)
	// Status of a refusal by the endpoint, 0 where an error is none.
	Status func(error) int
}

// Answer makes a call and gives the answer and why it ended, each piece of it to emit as it comes. An error
// comes with what was said before it, is ErrSilent, ErrBroken, ctx's or the vendor's, and
// its text tells what failed, never what was sent or said.
func (c Call[E]) Answer(ctx context.Context, idle time.Duration, emit func(string)) (string, services.Finish, error) {
	ctx, end := watch(ctx, idle)
	defer end()
	stream := c.Open(ctx)
	defer func() { _ = stream.Close() }()
	var text strings.Builder
	var why services.Finish
	for stream.Next() {
		piece, ended := c.Read(stream.Current())
		if piece != "" {
			text.WriteString(piece)
			emit(piece)
		}
		if why == "" {
			why = ended
		}
	}
	err := stream.Err()
	switch cause := context.Cause(ctx); {
	case err != nil && cause != nil:
		err = &failure{cause.Error(), errors.Join(err, cause)}
	case err != nil:
		err = &failure{reason(err, c.Status(err)), err}
	case why == "":
		err = ErrBroken
	}
	return text.String(), why, err
}
