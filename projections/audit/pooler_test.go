package audit

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/deploy/testkit/must"
)

// pooler hands each question of a client to the process that was left last, as PgBouncer does
// with pool_mode=transaction.
type pooler struct {
	free []int
	made int
}

func (p *pooler) take() int {
	if len(p.free) == 0 {
		p.made++
		return p.made
	}
	last := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	return last
}

// at is one client of a pooler. One that keeps its process from the beginning is one of
// PostgreSQL itself, or of a pooler of sessions.
type at struct {
	*pooler
	kept int
}

func (c *at) backend(context.Context) (int, error) {
	if c.kept != 0 {
		return c.kept, nil
	}
	pid := c.take()
	c.free = append(c.free, pid)
	return pid, nil
}

func (c *at) keep(context.Context) error {
	if c.kept == 0 {
		c.kept = c.take()
	}
	return nil
}

// TestAPoolerOfTransactionsIsKnown, with none of its processes free, with one, or with two
// of which it may give either.
func TestAPoolerOfTransactionsIsKnown(t *testing.T) {
	t.Parallel()
	for _, free := range [][]int{nil, {7}, {7, 8}} {
		p := &pooler{free: free, made: 10}
		require.True(t, must.Get(pooled(t.Context(), &at{pooler: p}, &at{pooler: p}))(t), "%v", free)
	}
	require.False(t, must.Get(pooled(t.Context(), &at{kept: 1}, &at{kept: 2}))(t))
}

// roundRobin hands out the process that was left first.
type roundRobin struct{ *at }

func (c roundRobin) backend(ctx context.Context) (int, error) {
	pid, err := c.at.backend(ctx)
	if n := len(c.free); c.kept == 0 && n > 1 {
		c.free = append([]int{c.free[n-1]}, c.free[:n-1]...)
	}
	return pid, err
}

func TestAPoolerThatTakesTurnsIsKnown(t *testing.T) {
	t.Parallel()
	p := &pooler{free: []int{7, 8, 9}}
	require.True(t, must.Get(pooled(t.Context(), roundRobin{&at{pooler: p}}, roundRobin{&at{pooler: p}}))(t))
}
