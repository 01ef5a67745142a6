package answer

import (
	"context"
	"slices"
	"sync"
	"time"
)

// calls are those that are being answered, by the digests of their bodies.
type calls struct {
	mu sync.Mutex
	of map[string][]context.Context
	// missed are the newest calls whose callers hung up before the end, the oldest first.
	missed []missedCall
}

type missedCall struct {
	body string
	at   time.Time
}

// missedTime is for how long a call whose caller hung up may come again without a word, and mostMissed bounds how many
// such calls are known.
const missedTime, mostMissed = 10 * time.Minute, 4096

// enter notes a call until leave is called. again: the caller of the last one of that body hung up.
func (c *calls) enter(ctx context.Context, body string) (again bool, leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	missed := func(m missedCall) bool { return m.body == body }
	at := slices.IndexFunc(c.missed, missed)
	again = at >= 0 && time.Since(c.missed[at].at) < missedTime ||
		slices.ContainsFunc(c.of[body], func(one context.Context) bool { return one.Err() != nil })
	c.of[body] = append(c.of[body], ctx)
	return again, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.of[body] = slices.DeleteFunc(c.of[body], func(one context.Context) bool { return one == ctx })
		if len(c.of[body]) == 0 {
			delete(c.of, body)
		}
		c.missed = slices.DeleteFunc(c.missed, missed)
		if ctx.Err() != nil {
			c.missed = append(c.missed, missedCall{body, time.Now()})
			c.missed = slices.Delete(c.missed, 0, max(0, len(c.missed)-mostMissed))
		}
	}
}

// others reports whether the callers of other calls of a body still wait for their answers.
func (c *calls) others(ctx context.Context, body string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.of[body], func(one context.Context) bool { return one != ctx && one.Err() == nil })
}
