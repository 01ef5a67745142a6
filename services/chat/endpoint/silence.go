package endpoint

import (
	"context"
	"io"
	"time"
)

// patience is how long a model may say nothing, where nothing else is configured.
const patience = 30 * time.Second

// heardKey is where a call's context has what is to be told of each piece that comes.
type heardKey struct{}

// watch gives a context that ends when a call under it hears nothing for so long. End is
// to be called when the stream is over.
func watch(ctx context.Context, limit time.Duration) (watched context.Context, end func()) {
	if limit == 0 {
		limit = patience
	}
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() { cancel(ErrSilent) })
	heard := func() { timer.Reset(limit) }
	return context.WithValue(ctx, heardKey{}, heard), func() {
		timer.Stop()
		cancel(nil)
	}
}

// listening tells of whatever comes, also of the pings and comments that a model sends
// while it thinks, which the vendors' libraries keep to themselves.
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
