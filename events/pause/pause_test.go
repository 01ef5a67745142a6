package pause_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/pause"
)

// What ends first decides: the work, the caller, or the time for it.
func TestWithin(t *testing.T) {
	t.Parallel()
	fault := errors.New("it can't")
	ends := func(ctx context.Context) error {
		<-ctx.Done()
		return fmt.Errorf("unavailable: %w", ctx.Err())
	}
	late, err := pause.Within(t.Context(), time.Minute, func(context.Context) error { return nil })
	require.NoError(t, err)
	require.False(t, late)
	late, err = pause.Within(t.Context(), time.Minute, func(context.Context) error { return fault })
	require.ErrorIs(t, err, fault)
	require.False(t, late)
	late, err = pause.Within(t.Context(), time.Minute, func(context.Context) error { return context.DeadlineExceeded })
	require.ErrorIs(t, err, context.DeadlineExceeded, "of another clock")
	require.False(t, late)
	late, err = pause.Within(t.Context(), time.Millisecond, ends)
	require.NoError(t, err)
	require.True(t, late)
	// The caller gives up right behind the end of the time: it is not told of a deadline that is none of its own.
	ctx, giveUp := context.WithCancel(t.Context())
	late, err = pause.Within(ctx, time.Millisecond, func(ctx context.Context) error {
		err := ends(ctx)
		giveUp()
		return err
	})
	require.Equal(t, context.Canceled, err)
	require.False(t, late)
}
