package await_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/turnledger/turnledger/deploy/testkit/disktest"
	"github.com/turnledger/turnledger/deploy/testkit/must"
	"github.com/turnledger/turnledger/events/jetlog/internal/await"
	"github.com/turnledger/turnledger/events/jetlog/internal/failure"
)

// openGate opens a gate on a stream's folder, and lets it sync with fsync from then on.
func openGate(stream string, fsync func(*os.File) error) (*await.Gate, error) {
	g, err := await.OpenGate(stream)
	if err == nil {
		g.Fsync = fsync
	}
	return g, err
}

func gateFolder(t *testing.T) (stream, msgs string) {
	stream = filepath.Join(t.TempDir(), "jetstream", "$G", "streams", "TURNS-0")
	msgs = filepath.Join(stream, "msgs")
	require.NoError(t, os.MkdirAll(msgs, 0o700))
	return stream, msgs
}

func write(t *testing.T, msgs string, block int, text string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(msgs, fmt.Sprint(block, ".blk")), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	must.Get(f.WriteString(text))(t)
	require.NoError(t, f.Close())
}

func TestGateFollowsTheBlocks(t *testing.T) {
	t.Parallel()
	steps := map[string]func(t *testing.T, msgs string){
		"appended to": func(t *testing.T, msgs string) { write(t, msgs, 3, "more") },
		"followed":    func(t *testing.T, msgs string) { write(t, msgs, 3, "more"); write(t, msgs, 4, "next") },
		"followed by several": func(t *testing.T, msgs string) {
			for n := 4; n < 9; n++ {
				write(t, msgs, n, "next")
			}
		},
		"followed after a gap": func(t *testing.T, msgs string) { write(t, msgs, 3, "more"); write(t, msgs, 7, "far") },
		"purged and followed": func(t *testing.T, msgs string) {
			require.NoError(t, os.Remove(filepath.Join(msgs, "3.blk")))
			write(t, msgs, 4, "next")
		},
		"rewritten": func(t *testing.T, msgs string) {
			tmp, name := filepath.Join(msgs, "3.blk.tmp"), filepath.Join(msgs, "3.blk")
			require.NoError(t, os.WriteFile(tmp, []byte("other"), 0o600))
			require.NoError(t, os.Rename(tmp, name))
		},
		"made anew": func(t *testing.T, msgs string) {
			require.NoError(t, os.RemoveAll(msgs))
			require.NoError(t, os.Mkdir(msgs, 0o700))
			write(t, msgs, 1, "first")
		},
	}
	for name, step := range steps {
		for _, settled := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/settled=%t", name, settled), func(t *testing.T) {
				t.Parallel()
				stream, msgs := gateFolder(t)
				write(t, msgs, 3, "text")
				d := disktest.New()
				g := must.Get(openGate(stream, d.Fsync))(t)
				if settled {
					long := time.Now().Add(-time.Hour)
					require.NoError(t, os.Chtimes(msgs, long, long))
				}
				require.NoError(t, g.Wait(t.Context(), await.Mark(1)))
				d.Durable(t, msgs)
				step(t, msgs)
				require.NoError(t, g.Wait(t.Context(), await.Mark(2)))
				d.Durable(t, msgs)
			})
		}
	}
}

// TestASyncVouchesOnlyForWhatWasBeforeIt has an event written, and waited for, while the disk is at work
// for an earlier one: the next sync is its own.
func TestASyncVouchesOnlyForWhatWasBeforeIt(t *testing.T) {
	t.Parallel()
	for _, settled := range []bool{false, true} {
		t.Run(fmt.Sprint("settled ", settled), func(t *testing.T) {
			t.Parallel()
			stream, msgs := gateFolder(t)
			write(t, msgs, 3, "one")
			d := disktest.New()
			var g *await.Gate
			second := make(chan error, 1)
			late := sync.OnceFunc(func() {
				write(t, msgs, 3, "two")
				go func() { second <- g.Wait(t.Context(), await.Mark(2)) }()
				for g.Wanted() < 2 && t.Context().Err() == nil {
					runtime.Gosched()
				}
			})
			g = must.Get(openGate(stream, func(f *os.File) error {
				err := d.Fsync(f)
				late()
				return err
			}))(t)
			if settled {
				long := time.Now().Add(-time.Hour)
				require.NoError(t, os.Chtimes(msgs, long, long))
			}
			require.NoError(t, g.Wait(t.Context(), await.Mark(1)))
			require.NoError(t, <-second)
			d.Durable(t, msgs)
		})
	}
}

func TestGateNeedsTheLayoutItKnows(t *testing.T) {
	t.Parallel()
	stream, msgs := gateFolder(t)
	g := must.Get(openGate(stream, (*os.File).Sync))(t)
	require.NoError(t, os.Mkdir(filepath.Join(msgs, "blocks"), 0o700))
	require.ErrorIs(t, g.Wait(t.Context(), await.Mark(1)), failure.ErrLayout, "events without a block file")
	write(t, msgs, 1, "text")
	require.NoError(t, g.Wait(t.Context(), await.Mark(1)), "what failed was not an fsync")
	must.Fail(openGate(filepath.Join(stream, "elsewhere"), (*os.File).Sync))(t, failure.ErrLayout)
}

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
