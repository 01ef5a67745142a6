// Package convoy lets callers that come at the same time have their work done together.
package convoy

import (
	"context"
	"sync"
)

// Convoy is a queue of works of which one caller, the leader, does several at once. Works that come meanwhile wait, and
// go together after them. It has no goroutine of its own. The zero value is ready for use. Safe for concurrent use.
type Convoy[W any] struct {
	mu      sync.Mutex
	moving  bool
	waiting []*waiter[W]
}

type waiter[W any] struct {
	work W
	// told is whether the caller must lead. If not, its work is done.
	told chan bool
}

// Do returns once work is done, perhaps by another caller. If nobody has begun it before ctx ends, Do takes it back,
// and returns ctx's error. A caller that leads calls lead with its own work and those behind it: as many as share says,
// which is given the works that wait, in their order. The next leader goes ahead when lead has returned, or has called
// yield. What lead does is for all, so it must not end with its caller.
func (c *Convoy[W]) Do(
	ctx context.Context, work W, share func(waiting []W) int, lead func(works []W, yield func()),
) error {
	w := &waiter[W]{work: work, told: make(chan bool, 1)}
	leads := c.join(w)
	if !leads {
		select {
		case leads = <-w.told:
		case <-ctx.Done():
			if c.leave(w) {
				return ctx.Err()
			}
			leads = <-w.told
		}
	}
	if leads {
		c.lead(share, lead)
	}
	return nil
}

// Waiting returns how many works nobody has begun.
func (c *Convoy[W]) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}

// join adds a waiter, and reports whether it must lead.
func (c *Convoy[W]) join(w *waiter[W]) (leads bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, w)
	leads = !c.moving
	c.moving = true
	return leads
}

// leave takes out a waiter, and reports whether it was still waiting. One that was told to lead must lead.
func (c *Convoy[W]) leave(w *waiter[W]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, other := range c.waiting {
		if other == w && len(w.told) == 0 {
			c.waiting = append(c.waiting[:i], c.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// lead does the works that come first. The first of them is the leader's own.
func (c *Convoy[W]) lead(share func(waiting []W) int, lead func(works []W, yield func())) {
	group, works := c.next(share)
	yield := sync.OnceFunc(c.pass)
	defer func() {
		yield()
		for _, w := range group[1:] {
			w.told <- false
		}
	}()
	lead(works, yield)
}

// next takes out the first waiters, as many as share says.
func (c *Convoy[W]) next(share func(waiting []W) int) (group []*waiter[W], works []W) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.waiting {
		works = append(works, w.work)
	}
	n := min(max(share(works), 1), len(works))
	group = c.waiting[:n:n]
	c.waiting = append([]*waiter[W](nil), c.waiting[n:]...)
	return group, works[:n:n]
}

// pass lets the first of those that wait lead.
func (c *Convoy[W]) pass() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		c.moving = false
		return
	}
	c.waiting[0].told <- true
}
