package main

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"
)

// errReopen: the log was made anew, and all that was opened on it is to be opened again.
var errReopen = errors.New("the log was made anew")

// pause stops what follows the log while requests are still answered, and ends the app so
// that it is opened again.
type pause struct {
	mu      sync.Mutex
	stop    []context.CancelFunc
	running sync.WaitGroup
	ended   bool
	end     func()
}

// begin runs a follower of the log in g until ctx ends, or follow is called off.
func (p *pause) begin(ctx context.Context, g *errgroup.Group, follow func(context.Context) error) {
	ctx, stop := context.WithCancel(ctx)
	p.mu.Lock()
	p.stop = append(p.stop, stop)
	p.mu.Unlock()
	p.running.Add(1)
	g.Go(func() error {
		defer p.running.Done()
		defer stop()
		return follow(ctx)
	})
}

// still stops all followers, and waits for them.
func (p *pause) still() {
	p.mu.Lock()
	for _, stop := range p.stop {
		stop()
	}
	p.mu.Unlock()
	p.running.Wait()
}

// onReopen says how the app is ended, until what it gives back is called.
func (p *pause) onReopen(end func()) (over func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end = end; p.ended {
		end()
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.end = nil
	}
}

// reopen ends the app: requests under way are answered.
func (p *pause) reopen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended = true; p.end != nil {
		p.end()
	}
}

func (p *pause) reopening() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}
