package rebuild

import (
	"context"
	"sync"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
)

// The states of a rebuild, beside those of runners.
const (
	StateRebuilding = "rebuilding"
	StateFailed     = "rebuild_failed"
)

// progress of one partition, for Status.
type progress struct {
	partition int

	mu          sync.Mutex
	seq, head   uint64
	events      int
	since, last time.Time
}

func (p *progress) began(seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seq, p.since = seq, time.Now()
	p.last = p.since
}

func (p *progress) aim(head uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.head = head
}

func (p *progress) reached(seq uint64, events int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seq, p.last = seq, time.Now()
	p.events += events
}

// ended reports whether the rebuild has ended, and how.
func (r *Rebuild) ended() (bool, error) {
	select {
	case <-r.over:
		return true, r.err
	default:
		return false, nil
	}
}

// Ran returns when the rebuild was begun and when it was done; zero times until it is done, and if it failed.
func (r *Rebuild) Ran() (begun, done time.Time) {
	if over, err := r.ended(); !over || err != nil {
		return time.Time{}, time.Time{}
	}
	return r.begun, r.done
}

// statusDeadline bounds the queries of one Status.
const statusDeadline = 3 * time.Second

// Status reports how far the new generation is, or why the rebuild failed. After the swap it reports nothing.
func (r *Rebuild) Status(ctx context.Context, now time.Time) []projections.Status {
	ctx, cancel := context.WithTimeout(ctx, statusDeadline)
	defer cancel()
	over, err := r.ended()
	if over && err == nil {
		return nil
	}
	var out []projections.Status
	for _, p := range r.parts {
		s := p.status()
		if over {
			s.State, s.LastError, s.Rate, s.ETA = StateFailed, err.Error(), 0, 0
		}
		s.Measure(ctx, r.log, now)
		s.Name, s.Generation = r.view.Name(), r.gen.Number()
		out = append(out, s)
	}
	return out
}

func (p *progress) status() projections.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := projections.Status{
		Partition: p.partition, State: StateRebuilding,
		Position: events.Position{Partition: p.partition, Seq: p.seq}, Head: events.Position{Partition: p.partition,
			Seq: max(p.head, p.seq)},
	}
	if took := p.last.Sub(p.since).Seconds(); took > 0 {
		s.Rate = float64(p.events) / took
		s.ETA = time.Duration(float64(s.Head.Seq-s.Position.Seq) / max(s.Rate, 1) * float64(time.Second))
	}
	return s
}
