package runner

import (
	"context"
	"sync"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
)

// States of a partition, for Status.
const (
	starting = "starting"
	live     = "live"
	retrying = "retrying"
	failed   = "failed"
	stopped  = "stopped"
	// standby: another runner of the group feeds it.
	standby = "standby"
)

// progress of one partition, for Status.
type progress struct {
	partition int

	mu    sync.Mutex
	seq   uint64
	time  time.Time
	state string
	err   error
}

func (p *progress) set(state string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = state
	if err != nil || state == live || state == standby {
		p.err = err
	}
}

func (p *progress) reached(seq uint64, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seq = seq
	if !at.IsZero() {
		p.time = at
	}
}

// Status tells how far the projection is, with the log's head asked now.
func (r *Runner) Status(ctx context.Context, now time.Time) []projections.Status {
	out := make([]projections.Status, 0, len(r.parts))
	for k, p := range r.parts {
		head, err := r.log.Head(ctx, k)
		p.mu.Lock()
		s := projections.Status{Name: r.proj.Name(), Partition: k, State: p.state, Position: events.Position{Partition: k, Seq: p.seq}, Head: head}
		if err == nil {
			err = p.err
		}
		if head.Seq > p.seq {
			s.LagEvents = head.Seq - p.seq
			if !p.time.IsZero() {
				s.LagSeconds = now.Sub(p.time).Seconds()
			}
		}
		p.mu.Unlock()
		if err != nil {
			s.LastError = err.Error()
		}
		out = append(out, s)
	}
	return out
}
