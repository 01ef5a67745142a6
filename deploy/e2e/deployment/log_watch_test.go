package deployment_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/events/pause"
)

// logWatch asks each stream of a log for its state all the time, past all processes. So a test knows when the log
// itself stood still, as it does while its disk does.
type logWatch struct {
	mu    sync.Mutex
	asked map[int]time.Time // when the question that has no answer yet was put
	slow  time.Time         // when a slow answer came last
}

// slowAnswer is how long an answer takes of a log that stands still.
const slowAnswer = 500 * time.Millisecond

func watchLog(t *testing.T, url string, streams int) *logWatch {
	t.Helper()
	nc, err := nats.Connect(url)
	require.NoError(t, err)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	w := &logWatch{asked: map[int]time.Time{}}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var all sync.WaitGroup
	for k := range streams {
		all.Go(func() {
			for ctx.Err() == nil {
				w.ask(k)
				_, _ = js.Stream(ctx, fmt.Sprintf("TURNS-%d", k)) // only its time counts
				w.answered(k)
				pause.For(ctx, 100*time.Millisecond)
			}
		})
	}
	t.Cleanup(func() { stop(); all.Wait(); nc.Close() })
	return w
}

func (w *logWatch) ask(k int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked[k] = time.Now()
}

func (w *logWatch) answered(k int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.asked[k]) >= slowAnswer {
		w.slow = time.Now()
	}
	delete(w.asked, k)
}

// stoodStill reports whether the log stood still at some moment after a time.
func (w *logWatch) stoodStill(after time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	still := w.slow.After(after)
	for _, at := range w.asked {
		still = still || time.Since(at) >= slowAnswer
	}
	return still
}

func TestTheWatchTellsOfALogThatStoodStill(t *testing.T) { //nolint:paralleltest // synctest has a clock of its own
	synctest.Test(t, func(t *testing.T) {
		w, began := &logWatch{asked: map[int]time.Time{}}, time.Now()
		w.ask(0)
		pause.For(t.Context(), slowAnswer/2)
		w.answered(0)
		require.False(t, w.stoodStill(began), "it answered soon")
		w.ask(0)
		require.False(t, w.stoodStill(began))
		pause.For(t.Context(), 2*slowAnswer)
		require.True(t, w.stoodStill(time.Now()), "it stands still")
		w.answered(0)
		require.True(t, w.stoodStill(began))
		pause.For(t.Context(), time.Second)
		require.False(t, w.stoodStill(time.Now()), "that is over")
	})
}
