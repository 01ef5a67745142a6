package jetlog

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// witness is the newest small event of a stream that this process has seen, and when it was recorded. A stream restored
// from an older copy can grow past its former length. A process that was cut off meanwhile still notices: at the
// sequence that it saw last, another event stands now.
type witness struct {
	mu  sync.Mutex
	seq uint64
	at  time.Time
}

// maxWitness bounds the size of a witness in bytes, since it is read again to see whether it is still there.
const maxWitness = 64 << 10

func (w *witness) note(seq uint64, at time.Time, bytes int) {
	if bytes > maxWitness {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if seq > w.seq {
		w.seq, w.at = seq, at
	}
}

func (w *witness) get() (uint64, time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seq, w.at
}

// remember makes the head of a stream that was just opened its witness. If the head can't be read now, a tail will find
// another witness.
func (l *Log) remember(ctx context.Context, p *partition, head uint64) {
	if head == 0 {
		return
	}
	if m, err := l.message(ctx, p, map[string]any{"seq": head}); err == nil && m != nil {
		p.witness.note(m.Seq, m.Time, len(m.Data))
	}
}

// stands fails with ErrStream if another event stands in the place of a witness. If the witness was erased, nothing can
// be said, and stands returns nil.
func (l *Log) stands(ctx context.Context, p *partition, w *witness) error {
	seq, at := w.get()
	if seq == 0 {
		return nil
	}
	m, err := l.message(ctx, p, map[string]any{"seq": seq})
	if err != nil || m == nil || m.Time.Equal(at) {
		return err
	}
	return fmt.Errorf("%w: another event than was read from stream %s stands at %d: "+
		"it was restored while it was in use: %s",
		ErrStream, p.name, seq, startAgain)
}
