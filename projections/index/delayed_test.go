package index_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/turnledger/turnledger/projections"
	"github.com/turnledger/turnledger/projections/index"
)

// delayed is a store whose writes can be held back, as a proxy or a slow network does: the caller is told that the
// store did not answer, and the write comes when it is released.
type delayed struct {
	index.Objects
	mu      sync.Mutex
	holding chan struct{}
	held    []func(context.Context) error
}

var errLost = projections.Unavailable(errors.New("the answer was lost"))

func (d *delayed) hold() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holding = make(chan struct{})
}

// awaitHeld waits until a write is held back.
func (d *delayed) awaitHeld() {
	d.mu.Lock()
	held := d.holding
	d.mu.Unlock()
	<-held
}

// release lets the held writes come.
func (d *delayed) release(t testing.TB) {
	t.Helper()
	d.mu.Lock()
	held := d.held
	d.mu.Unlock()
	for _, write := range held {
		require.NoError(t, write(t.Context()))
	}
}

// Put implements index.Objects.
func (d *delayed) Put(ctx context.Context, collection string, objects []index.Object) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.holding == nil || objects[0].Session == "" { // a canary
		return d.Objects.Put(ctx, collection, objects)
	}
	if len(d.held) == 0 {
		close(d.holding)
	}
	d.held = append(d.held, func(ctx context.Context) error { return d.Objects.Put(ctx, collection, objects) })
	return errLost
}
