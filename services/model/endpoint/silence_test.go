package endpoint

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

type answering func(*http.Request) (*http.Response, error)

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// Pings and comments keep a connection alive while a model thinks.
func TestWhateverComesIsHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		body, model := io.Pipe()
		ctx, end := watch(t.Context(), time.Second)
		defer end()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://model.test", nil)
		require.NoError(t, err)
		resp, err := reporting{answering(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: body}, nil
		})}.RoundTrip(r)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		go func() {
			for range 5 {
				<-time.After(900 * time.Millisecond)
				_, _ = io.WriteString(model, ": wait\n\n")
			}
		}()
		_, err = io.ReadFull(resp.Body, make([]byte, 5*len(": wait\n\n")))
		require.NoError(t, err)
		require.NoError(t, ctx.Err())
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), ErrSilent)
	})
}
