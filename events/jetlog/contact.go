package jetlog

import (
	"context"
	"sync"
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
	var asked time.Time // first, of what nobody has answered since
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-mirrors.C:
			l.lookForMirrors(ctx)
			continue
		case <-tick.C:
		}
		if asked.IsZero() {
			asked = time.Now()
		}
		switch {
		case !l.nc.IsConnected(), len(l.nc.Servers()) < 2, l.anyHead(ctx, asked.Add(contactLost)):
			asked = time.Time{}
		case time.Since(asked) >= contactLost && ctx.Err() == nil:
			_ = l.nc.ForceReconnect() // fails only where the connection is closed
			asked = time.Time{}
		}
	}
}

// anyHead tells whether any partition in a cluster tells its head in time. The first that
// does is enough: those whose leader is out of reach are silent for as long as a question
// lasts.
func (l *Log) anyHead(ctx context.Context, until time.Time) bool {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	told := make(chan bool, len(l.partitions))
	for _, p := range l.partitions {
		if !p.shared.Load() {
			return true
		}
		all.Go(func() {
			_, err := p.barrier.wait(ctx)
			told <- err == nil
		})
	}
	for range l.partitions {
		if <-told {
			return true
		}
	}
	return false
}
