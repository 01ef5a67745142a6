package jetlog

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	contactEvery = 500 * time.Millisecond
	// contactLost is how long no partition may tell its head before another server is
	// tried: longer than one question lasts.
	contactLost = readDeadline + contactEvery
)

// Run keeps in touch with a cluster until ctx ends: where no partition tells its head, the
// connection goes on to another server. The one that it is with may be cut off from the
// others, and NATS tells its clients nothing of that. On a single server it only looks for
// mirrors that were made since.
func (l *Log) Run(ctx context.Context) error {
	tick := time.NewTicker(contactEvery)
	defer tick.Stop()
	mirrors := time.NewTicker(mirrorsEvery)
	defer mirrors.Stop()
	heard := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-mirrors.C:
			l.lookForMirrors(ctx)
			continue
		case <-tick.C:
		}
		switch {
		case !l.nc.IsConnected(), len(l.nc.Servers()) < 2, l.anyHead(ctx):
			heard = time.Now()
		case time.Since(heard) > contactLost && ctx.Err() == nil:
			_ = l.nc.ForceReconnect() // fails only where the connection is closed
			heard = time.Now()
		}
	}
}

// anyHead tells whether any partition in a cluster tells its head.
func (l *Log) anyHead(ctx context.Context) bool {
	var told atomic.Bool
	var all sync.WaitGroup
	for _, p := range l.partitions {
		if !p.shared.Load() {
			return true
		}
		all.Go(func() {
			if _, err := p.barrier.wait(ctx); err == nil {
				told.Store(true)
			}
		})
	}
	all.Wait()
	return told.Load()
}
