// Package endpoint is what the clients of all vendors' models share: how they are
// configured and connected, and how a stream of theirs becomes an answer.
package endpoint

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"
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
	return &http.Client{Transport: t}
}

// Stream of events, as the vendors' libraries give it.
type Stream[E any] interface {
	Next() bool
	Current() E
	Err() error
	Close() error
}

// Read opens a stream and gives the answer that it says, each piece of it to emit as it
// comes. Read tells of an event the piece of text in it, and whether the answer ends. An
// error comes with what was said before it: ErrSilent, ErrBroken, ctx's, or the vendor's.
func Read[E any](ctx context.Context, idle time.Duration, open func(context.Context) Stream[E], read func(E) (piece string, ended bool), emit func(string)) (string, error) {
	ctx, heard, end := watch(ctx, idle)
	defer end()
	stream := open(ctx)
	defer func() { _ = stream.Close() }()
	var text strings.Builder
	over := false
	for stream.Next() {
		heard()
		piece, ended := read(stream.Current())
		if piece != "" {
			text.WriteString(piece)
			emit(piece)
		}
		over = over || ended
	}
	switch err := stream.Err(); {
	case err != nil:
		return text.String(), errors.Join(err, context.Cause(ctx))
	case !over:
		return text.String(), ErrBroken
	default:
		return text.String(), nil
	}
}
