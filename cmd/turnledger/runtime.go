package main

import (
	"log/slog"
	"math"
	"os"
	"runtime"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
)

// The share of a control group's memory that the Go runtime stays below. dev leaves room for its PostgreSQL.
const (
	serveShare = 0.9
	devShare   = 0.7
)

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
