package redis

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/turnledger/turnledger/projections"
)

// client connects when it is first used, so that a process can start while Redis is down. After a failure, reads fail
// at once for a moment instead of each waiting for its timeout.
type client struct {
	opt        rueidis.ClientOption
	connecting chan struct{} // held while connecting
	stopped    bool
	conn       atomic.Pointer[rueidis.Client]
	down       atomic.Int64 // until then, in Unix ns
}

// downFor is how long reads fail at once after Redis gave no answer.
const downFor = 500 * time.Millisecond

func newClient(opt rueidis.ClientOption) *client {
	return &client{opt: opt, connecting: make(chan struct{}, 1)}
}

// exec runs a script.
func (c *client) exec(ctx context.Context, script *rueidis.Lua, keys, args []string) rueidis.RedisResult {
	return c.noted(ctx, c.run(ctx, script, keys, args))
}

// try runs a script that only reads, for at most a time, unless Redis gave no answer a moment ago. If an idle
// connection turns out to be broken, it tries once more.
func (c *client) try(ctx context.Context, most time.Duration, script *rueidis.Lua, keys,
	args []string) rueidis.RedisResult {
	if time.Now().UnixNano() < c.down.Load() {
		return rueidis.NewErrorResult(errDown)
	}
	short, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	r := c.run(short, script, keys, args)
	if r.NonRedisError() != nil && !over(short) {
		r = c.run(short, script, keys, args)
	}
	return c.noted(ctx, r)
}

// over reports whether ctx has ended. A read from a connection may see the deadline before ctx does.
func over(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

func (c *client) run(ctx context.Context, script *rueidis.Lua, keys, args []string) rueidis.RedisResult {
	conn, err := c.connect(ctx)
	if err != nil {
		return rueidis.NewErrorResult(err)
	}
	return script.Exec(ctx, conn, keys, args)
}

// noted remembers that Redis did not answer, until Redis answers again, and marks the error as ErrUnavailable of
// projections. It ignores a caller whose own ctx has ended, since that says nothing about Redis.
func (c *client) noted(caller context.Context, r rueidis.RedisResult) rueidis.RedisResult {
	switch answered := r.NonRedisError() == nil; {
	case answered && c.down.Load() != 0:
		c.down.Store(0)
	case !answered && !over(caller):
		c.down.Store(time.Now().Add(downFor).UnixNano())
		return rueidis.NewErrorResult(projections.Unavailable(r.NonRedisError()))
	}
	return r
}

func (c *client) connect(ctx context.Context) (rueidis.Client, error) {
	if conn := c.conn.Load(); conn != nil {
		return *conn, nil
	}
	select {
	case c.connecting <- struct{}{}:
		defer func() { <-c.connecting }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if conn := c.conn.Load(); conn != nil {
		return *conn, nil
	}
	if c.stopped {
		return nil, errClosed
	}
	conn, err := rueidis.NewClient(c.opt)
	if _, refused := rueidis.IsRedisErr(err); err != nil && !refused {
		err = projections.Unavailable(err)
	}
	if err != nil {
		return nil, err
	}
	c.conn.Store(&conn)
	return conn, nil
}

// close ends the connections. Running calls fail.
func (c *client) close() {
	c.connecting <- struct{}{}
	defer func() { <-c.connecting }()
	c.stopped = true
	if conn := c.conn.Load(); conn != nil {
		(*conn).Close()
	}
}

// evictsNothing reads the policy by INFO, which also works on servers that hide CONFIG.
func (c *client) evictsNothing(ctx context.Context) error {
	conn, err := c.connect(ctx)
	if err != nil {
		return err
	}
	info, err := c.noted(ctx, conn.Do(ctx, conn.B().Info().Section("memory").Build())).ToString()
	if err != nil {
		return err
	}
	for line := range strings.Lines(info) {
		if policy, ok := strings.CutPrefix(strings.TrimSpace(line), "maxmemory_policy:"); ok && policy != "noeviction" {
			return fmt.Errorf("%w; its maxmemory-policy is %s", ErrEviction, policy)
		}
	}
	return nil
}
