package jetlog

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// shown is the newest small event that a stream has shown to this process, and when it was recorded. While the stream is the same,
// no other event stands in its place: so one that was put back to an older state is known, even if it has grown longer since
// than it was, by those who were cut off meanwhile.
type shown struct {
	mu  sync.Mutex
	seq uint64
	at  time.Time
}

// mostShown bounds the bytes of an event that is read again to see whether it is still there.
const mostShown = 64 << 10

func (s *shown) note(seq uint64, at time.Time, bytes int) {
	if bytes > mostShown {
		return
	}
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

// remember notes the head of a stream that has just been opened. Where it can't be had now, a tail will see another.
func (l *Log) remember(ctx context.Context, p *partition, head uint64) {
	if head == 0 {
		return
	}
	if m, err := l.message(ctx, p, map[string]any{"seq": head}); err == nil && m != nil {
		p.shown.note(m.Seq, m.Time, len(m.Data))
	}
}

// stands tells whether an event that was shown still has its place; of one that was erased nobody can tell.
func (l *Log) stands(ctx context.Context, p *partition, s *shown) error {
	seq, at := s.get()
	if seq == 0 {
		return nil
	}
	m, err := l.message(ctx, p, map[string]any{"seq": seq})
	if err != nil || m == nil || m.Time.Equal(at) {
		return err
	}
	return fmt.Errorf("%w: another event than was read from stream %s stands at %d: it was restored while it was in use: start this process again, and then rebuild the projections: turnledger projections rebuild NAME",
		ErrStream, p.name, seq)
}
