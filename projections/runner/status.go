package runner

import (
	"cmp"
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/projections"
)

// States of a partition, for Status.
const (
	starting = "starting"
	live     = projections.Live
	retrying = projections.Retrying
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
	state string
	err   error
	// silent is why the store did not answer when it was looked at last; nil if it did.
	silent error
	rate   rate
}

func (p *progress) set(state string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = state
	if err != nil || state == live || state == standby {
		p.err = err
	}
	if state == live {
		p.silent = nil
	}
}

// looked notes whether the store has answered while nothing is applied.
func (p *progress) looked(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = err
}

// end notes that the runner has ended: if one partition of a projection follows another stream, none is fed.
func (p *progress) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != failed {
		p.state, p.err = stopped, err
	}
}

// reached notes a position, and how many events brought it there.
func (p *progress) reached(seq uint64, applied int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seq = seq
	p.rate.add(applied, time.Now())
}

// statusDeadline bounds the queries of one Status.
const statusDeadline = 3 * time.Second

// Status reports how far the projection is, and asks for the log's head now. If another runner feeds a partition,
// Status asks the projection's store for that partition's position. If the log does not answer within 3 s, the status
// says so; it never shows that as no lag.
func (r *Runner) Status(ctx context.Context, now time.Time) []projections.Status {
	ctx, cancel := context.WithTimeout(ctx, statusDeadline)
	defer cancel()
	out := make([]projections.Status, len(r.parts))
	var g errgroup.Group
	for k := range r.parts {
		g.Go(func() error { out[k] = r.status(ctx, k, now); return nil })
	}
	_ = g.Wait() // what is wrong stands in each status
	return out
}

func (r *Runner) status(ctx context.Context, k int, now time.Time) projections.Status {
	p := r.parts[k]
	p.mu.Lock()
	s := projections.Status{Name: r.proj.Name(), Partition: k, State: p.state, Rate: p.rate.perSecond(now)}
	seq, err, silent := p.seq, p.err, p.silent
	p.mu.Unlock()
	if s.State != live {
		asked, cancel := context.WithTimeout(ctx, statusDeadline/2) // a store that hangs leaves time to ask the log
		at, fault := r.proj.Applied(asked, k)
		cancel()
		seq, err = max(at.Seq, seq), cmp.Or(err, fault)
		if fault != nil && s.State == standby {
			s.State = retrying
		}
	} else if silent != nil {
		s.State, err = retrying, silent
	}
	s.Position = events.Position{Partition: k, Seq: seq}
	head, fault := r.log.Head(ctx, k)
	s.Head = head
	if fault != nil {
		err, s.HeadUnknown = fault, true
		if s.State == live || s.State == standby {
			s.State = projections.Unknown
		}
	} else if s.LagUnknown = foreign(err); !s.LagUnknown {
		s.Measure(ctx, r.log, now)
	}
	if err != nil {
		s.LastError = err.Error()
	}
	return s
}
