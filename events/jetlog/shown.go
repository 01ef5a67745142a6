package jetlog

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// shown is the newest event that a stream has shown to this process, and when it was recorded. While the stream is the same,
// no other event stands in its place: so one that was put back to an older state is known, even if it has grown longer since
// than it was, by those who were cut off meanwhile.
type shown struct {
	mu  sync.Mutex
	seq uint64
	at  time.Time
}

func (s *shown) note(seq uint64, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seq > s.seq {
		s.seq, s.at = seq, at
	}
}

func (s *shown) get() (uint64, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seq, s.at
}

// recognize holds a stream that ends at head against what it has shown, and remembers its head.
func (l *Log) recognize(ctx context.Context, p *partition, head uint64) error {
	seq, at := p.shown.get()
	if err := l.stands(ctx, p, seq, at); err != nil || head <= seq {
		return err
	}
	m, err := l.message(ctx, p, map[string]any{"seq": head})
	if err == nil && m != nil {
		p.shown.note(m.Seq, m.Time)
	}
	return err
}

// stands tells whether an event still has its place; of one that was erased nobody can tell.
func (l *Log) stands(ctx context.Context, p *partition, seq uint64, at time.Time) error {
	if seq == 0 || at.IsZero() {
		return nil
	}
	m, err := l.message(ctx, p, map[string]any{"seq": seq})
	if err != nil || m == nil || m.Time.Equal(at) {
		return err
	}
	return fmt.Errorf("%w: another event than was read from stream %s stands at %d: it was restored while it was in use: start this process again, and then rebuild the projections: turnledger projections rebuild NAME",
		ErrStream, p.name, seq)
}
