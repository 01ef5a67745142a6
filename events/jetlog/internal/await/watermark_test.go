package await_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/events/jetlog/internal/await"
)

// TestWatermarkWakesExactlyWhoIsReached holds a watermark against a plain list of
// who waits for what.
func TestWatermarkWakesExactlyWhoIsReached(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var w await.Watermark
		model := watermarkModel{waiting: map[int]*waiting{}}
		defer model.giveUpAll()
		t.Repeat(map[string]func(*rapid.T){
			"advance": func(t *rapid.T) {
				seq := rapid.Uint64Range(0, 40).Draw(t, "seq")
				w.Advance(seq)
				model.at = max(model.at, seq)
			},
			"wait": func(t *rapid.T) { model.wait(&w, rapid.Uint64Range(0, 50).Draw(t, "for")) },
			"give up": func(t *rapid.T) {
				if len(model.waiting) > 0 {
					model.giveUp(t, rapid.IntRange(0, model.made-1).Draw(t, "who"))
				}
			},
			"": func(t *rapid.T) {
				require.Equal(t, model.at, w.At())
				model.check(t)
			},
		})
	})
}

type watermarkModel struct {
	at      uint64
	made    int
	waiting map[int]*waiting
}

type waiting struct {
	seq    uint64
	cancel context.CancelFunc
	done   chan error
}

func (m *watermarkModel) wait(w *await.Watermark, seq uint64) {
	ctx, cancel := context.WithCancel(context.Background())
	x := &waiting{seq: seq, cancel: cancel, done: make(chan error, 1)}
	go func() { x.done <- w.Wait(ctx, seq) }()
	m.waiting[m.made] = x
	m.made++
}

// giveUp ends a wait: with success where it was reached before, else with the
// context's error.
func (m *watermarkModel) giveUp(t *rapid.T, who int) {
	x, ok := m.waiting[who]
	if !ok {
		return
	}
	delete(m.waiting, who)
	if x.seq <= m.at {
		require.NoError(t, <-x.done)
		x.cancel()
		return
	}
	x.cancel()
	require.ErrorIs(t, <-x.done, context.Canceled)
}

// check waits for all that must be awake and holds that nobody else is.
func (m *watermarkModel) check(t *rapid.T) {
	for who, x := range m.waiting {
		if x.seq <= m.at {
			require.NoError(t, <-x.done)
			x.cancel()
			delete(m.waiting, who)
			continue
		}
		select {
		case err := <-x.done:
			require.Fail(t, fmt.Sprintf("woken for %d at %d: %v", x.seq, m.at, err))
		default:
		}
	}
}

func (m *watermarkModel) giveUpAll() {
	for _, x := range m.waiting {
		x.cancel()
		<-x.done //nolint:errcheck // it says only that the wait is over
	}
}
