package convoy_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/convoy"
)

// works returns a convoy's way to do numbers, which notes what was done together.
type works struct {
	convoy.Convoy[int]

	mu    sync.Mutex
	began int
	done  [][]int
	// held, if set, is waited for before works are done; early lets the next ones go before that.
	held  chan struct{}
	early bool
}

func upTo(n int) func([]int) int { return func(waiting []int) int { return min(n, len(waiting)) } }

func (w *works) do(ctx context.Context, n, most int) error {
	return w.Do(ctx, n, upTo(most), func(group []int, yield func()) {
		w.began++
		if w.early {
			yield()
		}
		if w.held != nil {
			<-w.held
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.done = append(w.done, group)
	})
}

// What comes while a leader is at work goes together after it, in order and in groups of the size that share allows.
func TestWorksThatWaitGoTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &works{held: make(chan struct{})}
		for n := range 8 {
			go func() { assert.NoError(t, w.do(t.Context(), n, 5)) }()
			synctest.Wait()
		}
		close(w.held)
		synctest.Wait()
		require.Equal(t, [][]int{{0}, {1, 2, 3, 4, 5}, {6, 7}}, w.done)
		require.NoError(t, w.do(t.Context(), 8, 5), "it begins anew")
	})
}

// A leader that yields does not hold up the next one.
func TestALeaderYields(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &works{held: make(chan struct{}), early: true}
		for n := range 3 {
			go func() { assert.NoError(t, w.do(t.Context(), n, 1)) }()
		}
		synctest.Wait()
		require.Equal(t, 3, w.began)
		for range 3 {
			w.held <- struct{}{}
		}
		synctest.Wait()
		require.Len(t, w.done, 3)
	})
}

// A caller that gives up takes its work back, unless somebody is at it already.
func TestACallerGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &works{held: make(chan struct{})}
		var contexts []context.CancelFunc
		var errs [4]error
		for n := range 4 {
			ctx, cancel := context.WithCancel(t.Context())
			contexts = append(contexts, cancel)
			go func() { errs[n] = w.do(ctx, n, 2) }()
			synctest.Wait()
		}
		contexts[0]()
		contexts[1]()
		synctest.Wait()
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], context.Canceled)
		w.held <- struct{}{} // the first
		synctest.Wait()
		contexts[2]()
		contexts[3]()
		synctest.Wait()
		close(w.held)
		synctest.Wait()
		require.Equal(t, [][]int{{0}, {2, 3}}, w.done)
		require.NoError(t, errs[2])
		require.NoError(t, errs[3])
	})
}

// A leader that panics does not leave the others behind.
func TestALeaderPanics(t *testing.T) {
	t.Parallel()
	var c convoy.Convoy[int]
	all := func(waiting []int) int { return len(waiting) }
	require.Panics(t, func() { _ = c.Do(t.Context(), 1, all, func([]int, func()) { panic("out") }) })
	require.NoError(t, c.Do(t.Context(), 2, all, func([]int, func()) {}))
}
