package main

import (
	"context"
	"time"
)

// workload is the kind of work that a client does.
type workload string

const (
	twoCalls workload = "W two calls"
	oneCall  workload = "W one call"
	batches  workload = "W batches of 500"
	reads    workload = "R"
	long     workload = "L"
)

// system is a measured system: processes, and their clients. The comparison treats all systems alike.
// More than seven methods: it has only one consumer.
type system interface {
	name() string
	start(ctx context.Context, dir string) error
	stop() error
	// client makes a client for a workload, and reports whether the system supports the workload.
	client(ctx context.Context, w workload) (client, bool)
	// fill records a session with the given number of turns.
	fill(ctx context.Context, session string, turns int) error
	processor() time.Duration
	memory(ctx context.Context) (live, peak int64)
	// lag returns how many seconds the slowest view is behind; settle returns when no view is behind.
	lag(ctx context.Context) float64
	settle(ctx context.Context) error
	// imported records conversations of one turn each, and returns how long that took.
	imported(ctx context.Context, conversations int) (time.Duration, error)
}
