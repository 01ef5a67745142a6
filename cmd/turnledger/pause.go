package main

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"
)

// errReopen: the log was replaced, and everything that was opened on it must be opened again.
var errReopen = errors.New("the log was replaced")

// pause stops an app in steps while its log is replaced: answers first, then everything that follows the log, then the
// app itself, so that it is opened again.
type pause struct {
	// quiet is closed when no request is taken any more, reopen when the app must be opened again.
	quiet, reopen chan struct{}

	once    [2]sync.Once
	mu      sync.Mutex
	stilled bool
	stop    []context.CancelFunc
	running sync.WaitGroup
}

func newPause() *pause { return &pause{quiet: make(chan struct{}), reopen: make(chan struct{})} }

// begin runs a follower of the log in g until ctx ends, or still is called.
func (p *pause) begin(ctx context.Context, g *errgroup.Group, follow func(context.Context) error) {
	ctx, stop := context.WithCancel(ctx)
	p.mu.Lock()
	p.stop = append(p.stop, stop)
	if p.stilled {
		stop()
	}
	p.mu.Unlock()
	p.running.Add(1)
	g.Go(func() error {
		defer p.running.Done()
		defer stop()
		return follow(ctx)
	})
}

// hush makes quiet known.
func (p *pause) hush() { p.once[0].Do(func() { close(p.quiet) }) }

// still stops all followers, and waits for them.
func (p *pause) still() {
	p.mu.Lock()
	p.stilled = true
	for _, stop := range p.stop {
		stop()
	}
	p.mu.Unlock()
	p.running.Wait()
}

// end has the app opened again.
func (p *pause) end() { p.once[1].Do(func() { close(p.reopen) }) }

// ended reports whether the app must be opened again.
func (p *pause) ended() bool {
	select {
	case <-p.reopen:
		return true
	default:
		return false
	}
}
