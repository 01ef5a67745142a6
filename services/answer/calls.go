package answer

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// calls are those that are being answered, by the digests of their bodies.
type calls struct {
	mu sync.Mutex
	of map[string][]context.Context
	// missed are the bodies of calls whose callers hung up before the end, with the time of that.
	missed map[string]time.Time
}

// missedTime is for how long a call whose caller hung up may come again without a word.
const missedTime = 10 * time.Minute

// enter notes a call until leave is called. again: the caller of the last one of that body hung up.
func (c *calls) enter(ctx context.Context, body string) (again bool, leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, missed := c.missed[body]
	again = missed && time.Since(at) < missedTime ||
		slices.ContainsFunc(c.of[body], func(one context.Context) bool { return one.Err() != nil })
	c.of[body] = append(c.of[body], ctx)
	return again, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.of[body] = slices.DeleteFunc(c.of[body], func(one context.Context) bool { return one == ctx })
		if len(c.of[body]) == 0 {
			delete(c.of, body)
		}
		delete(c.missed, body)
		if ctx.Err() != nil {
			maps.DeleteFunc(c.missed, func(_ string, at time.Time) bool { return time.Since(at) > missedTime })
			c.missed[body] = time.Now()
		}
	}
}

// others reports whether the callers of other calls of a body still wait for their answers.
func (c *calls) others(ctx context.Context, body string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.of[body], func(one context.Context) bool { return one != ctx && one.Err() == nil })
}
