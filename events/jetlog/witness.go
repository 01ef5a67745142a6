package jetlog

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/turnledger/turnledger/events/pause"
)

// witness is the newest event of a stream that this process has seen, and the newest small one. A stream restored from
// an older copy can grow past its former length. A process that was cut off meanwhile still notices: at the sequence
// that it saw last, another event stands now.
type witness struct {
	mu            sync.Mutex
	newest, small sighting
}

// sighting is an event that was seen: its sequence, and when it was recorded.
type sighting struct {
	seq uint64
	at  time.Time
}

// maxSmall bounds the size in bytes of an event that is read again every second to see whether it is still there.
const maxSmall = 64 << 10

func (w *witness) note(seq uint64, at time.Time, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if seq > w.newest.seq {
		w.newest = sighting{seq, at}
	}
	if seq > w.small.seq && bytes <= maxSmall {
		w.small = sighting{seq, at}
	}
}

func (w *witness) get() (newest, small sighting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.newest, w.small
}

// remember makes the head of a stream that was just opened its witness. If the head can't be read now, a tail will find
// another witness.
func (l *Log) remember(ctx context.Context, p *partition, head uint64) {
	if head == 0 {
		return
	}
	p.saw(head)
	if m, err := l.message(ctx, p, map[string]any{"seq": head}); err == nil && m != nil {
		p.witness.note(m.Seq, m.Time, len(m.Data))
	}
}

// stands fails with ErrStream if another event stands in the place of one that was seen. If the event was erased,
// nothing can be said, and stands returns nil.
func (l *Log) stands(ctx context.Context, p *partition, seen sighting) error {
	if seen.seq == 0 {
		return nil
	}
	m, err := l.message(ctx, p, map[string]any{"seq": seen.seq})
	if err != nil || m == nil || m.Time.Equal(seen.at) {
		return err
	}
	return fmt.Errorf("%w: another event than was read from stream %s stands at %d: "+
		"it was restored while it was in use: %s",
		ErrStream, p.name, seen.seq, startAgain)
}

// unreplaced returns the stream's last sequence. It fails with ErrStream unless the stream is the one that was opened,
// still has all that this process has seen, and has its newest event. The server in this process can't be exchanged
// under it, so that its events are not read again.
func (l *Log) unreplaced(ctx context.Context, p *partition) (uint64, error) {
	info, err := l.reaching(ctx, p, nil, p.seen.Load())
	if err == nil && l.cfg.Outside {
		newest, _ := p.witness.get()
		err = l.stands(ctx, p, newest)
	}
	return info.State.LastSeq, err
}

// same compares the stream with the one that the process has read, which may be further than the tail. With replicas, a
// leader whose log ends too early may have been deposed without knowing it yet, so same asks again for a while.
func (t *Tail) same(ctx context.Context) error {
	for began := time.Now(); ; pause.For(ctx, 100*time.Millisecond) {
		seen := max(t.last, t.p.seen.Load())
		head, err := t.log.head(ctx, t.p)
		switch {
		case err != nil:
			return err
		case head >= seen:
			return t.stands(ctx)
		case t.p.shared.Load() && time.Since(began) < deposedTime:
			continue
		}
		return fmt.Errorf("%w: stream %s ends at %d, before %d that was read from it: it was restored or made anew: %s",
			ErrStream, t.p.name, head, seen, startAgain)
	}
}

// stands looks at the newest event that the tail has read, and at the newest that the process has seen: a tail that
// began at the log's end may have read none yet. Of the server in this process it looks at the newest small ones: they
// are read each time a tail is opened, and that server can't be exchanged under it.
func (t *Tail) stands(ctx context.Context) error {
	own, ownSmall := t.witness.get()
	seen, seenSmall := t.p.witness.get()
	if !t.log.cfg.Outside {
		own, seen = ownSmall, seenSmall
	}
	if err := t.log.stands(ctx, t.p, own); err != nil || own.seq == seen.seq {
		return err
	}
	return t.log.stands(ctx, t.p, seen)
}

// deposedTime is more than a leader takes to learn that it was deposed.
const deposedTime = 10 * time.Second
