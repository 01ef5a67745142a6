package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	turnsOfSession = 20 // turns of a session before W begins a new one
	longSession    = 1000
	readMessages   = 200
	readWindow     = 12
	batch          = 500
)

// client is one connection to a system. do records turns (or reads a window) once; n is the number of turns or windows.
type client interface {
	do(ctx context.Context, session string) (n int, err error)
	close()
}

// result is the outcome of one run of a workload on a system.
type result struct {
	perSecond     float64
	p50, p99      time.Duration
	perTurn       time.Duration // processor time of the system, without its clients
	lag           float64       // seconds, the highest seen under load
	heap, highest int64         // bytes
}

// job is the work of the clients.
type job struct {
	clients  []client
	session  func(client, turn int) string
	duration time.Duration
	warm     time.Duration
}

// run makes each client work without pause, and counts after the warm-up. Then it waits until the system has settled.
func (j job) run(ctx context.Context, s system) (r result, err error) {
	var (
		counting, over atomic.Bool
		done           atomic.Int64
		all            atomic.Int64
		failed         atomic.Pointer[error]
		group          sync.WaitGroup
		took           = make([][]time.Duration, len(j.clients))
	)
	before := s.processor()
	for i, c := range j.clients {
		group.Go(func() {
			for turn := 0; !over.Load(); turn++ {
				began := time.Now()
				n, err := c.do(ctx, j.session(i, turn))
				if err != nil {
					if failed.CompareAndSwap(nil, &err) {
						over.Store(true)
					}
					return
				}
				all.Add(int64(n))
				if counting.Load() {
					took[i] = append(took[i], time.Since(began))
					done.Add(int64(n))
				}
			}
		})
	}
	sleep(ctx, j.warm)
	began := time.Now()
	counting.Store(true)
	lag := watchLag(ctx, s, j.duration)
	counting.Store(false)
	elapsed, n := time.Since(began), done.Load()
	over.Store(true)
	group.Wait()
	if e := failed.Load(); e != nil {
		return r, fmt.Errorf("%s: %w", s.name(), *e)
	}
	if err := s.settle(ctx); err != nil {
		return r, fmt.Errorf("%s: %w", s.name(), err)
	}
	each := slices.Concat(took...)
	slices.Sort(each)
	if len(each) == 0 {
		return r, fmt.Errorf("%s: nothing was done in %v", s.name(), j.duration)
	}
	r = result{
		perSecond: float64(n) / elapsed.Seconds(), lag: lag,
		p50: each[len(each)/2], p99: each[len(each)*99/100],
		perTurn: (s.processor() - before) / time.Duration(all.Load()),
	}
	r.heap, r.highest = s.memory(ctx)
	return r, nil
}

// watchLag watches for the duration d, and returns the highest lag of a view in seconds.
func watchLag(ctx context.Context, s system, d time.Duration) (most float64) {
	for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil; {
		most = max(most, s.lag(ctx))
		sleep(ctx, min(time.Second, time.Until(end)))
	}
	return most
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
