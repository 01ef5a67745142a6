package main

import (
	"context"
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/events/pause"
)

// The share of a control group's memory that the Go runtime stays below. dev leaves room for its PostgreSQL.
const (
	serveShare = 0.9
	devShare   = 0.7
)

// The room that the garbage collector leaves between two collections: 35 % of what is live, but at least
// leastRoom as long as the heap stays below smallHeap.
// By Go's own default a small heap would be collected too often, and a large one would grow to twice its size
// (docs/decisions.md#the-collectors-room-follows-what-is-live).
const (
	leastRoom     = 256 << 20
	smallHeap     = 704 << 20
	percentOfLive = 35
	tuneEvery     = 200 * time.Millisecond
)

// gcPercent returns the value of GOGC that leaves the room.
func gcPercent(live uint64) int {
	if live == 0 {
		return 100
	}
	least := min(leastRoom, smallHeap-min(live, smallHeap))
	return int(max(percentOfLive, min(100*least/live, 10_000)))
}

// tuneCollector sets GOGC by what is live, until ctx ends. A GOGC of the environment wins.
func tuneCollector(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for set := 100; ; {
		metrics.Read(live)
		// To less room at once, so that the heap stays below its bound. To more in steps: to set it stops the world.
		if p := gcPercent(live[0].Value.Uint64()); p < set || p*10 > set*11 {
			debug.SetGCPercent(p)
			set = p
		}
		if !pause.For(ctx, tuneEvery) {
			return
		}
	}
}

// tuneRuntime fits the Go runtime to its surroundings; the variables of the runtime itself (GOMAXPROCS, GOMEMLIMIT)
// win. Where the log is embedded, an fsync holds a processor while it waits for the disk, so that one more runs
// (docs/decisions.md#one-processor-more-where-the-log-is-embedded). In a control group with a memory limit the
// garbage collector works harder before the kernel would end the process.
func tuneRuntime(cfg config.Config, share float64, logger *slog.Logger) {
	if cfg.NATSURL == "" && os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	}
	limit, err := memlimit.Set(memlimit.WithRatio(share))
	if err != nil {
		logger.Debug("the memory limit of the control group is not known", "err", err)
	} else if limit < math.MaxInt64 {
		logger.Info("the memory is limited", "bytes", limit)
	}
}
