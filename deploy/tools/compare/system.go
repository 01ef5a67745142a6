package main

import (
	"context"
	"time"
)

// workload names what a client does.
type workload string

const (
	twoCalls workload = "W two calls"
	oneCall  workload = "W one call"
	batches  workload = "W batches of 500"
	reads    workload = "R"
	long     workload = "L"
)

// system is what is measured: processes, and clients of them. The comparison asks the same
// of each system. More than seven methods: it has one consumer.
type system interface {
	name() string
	start(ctx context.Context, dir string) error
	stop() error
	// offers reports whether the system has a client for a workload, and makes one.
	client(ctx context.Context, w workload) (client, bool)
	// fill records a session of so many turns.
	fill(ctx context.Context, session string, turns int) error
	processor() time.Duration
	memory(ctx context.Context) (live, peak int64)
	// lag is how many seconds the slowest view is behind; settle returns when none is.
	lag(ctx context.Context) float64
	settle(ctx context.Context) error
	// imported records conversations of one turn, and returns how long that took.
	imported(ctx context.Context, conversations int) (time.Duration, error)
}
