// Command compare runs the built turnledger beside the tools that people use instead (bare inserts into PostgreSQL, a
// bare Redis list, bare JetStream publishes) and prints the figures of each. All run in one run, in turns, each as
// processes of its own, with the clients on the same processors. `make bench-compare` runs it. The workloads are named
// as in docs/benchmarks.md: W records turns of 120 and 600 bytes, R reads the last 12 messages of 200, L writes to
// sessions of 1,000 turns, import records conversations of one turn each by `turnledger import`, and counted records a
// fixed number of turns, and says what they take of memory and of the processor.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// settings are the flags.
type settings struct {
	binary    string
	duration  time.Duration
	warm      time.Duration
	runs      int
	imports   int
	workloads string
	systems   string
	conns     string
	dir       string
	linked    bool
	turns     int
	profiles  string
}

func main() {
	var s settings
	flag.StringVar(&s.binary, "bin", "bin/tested/turnledger", "the turnledger to measure")
	flag.DurationVar(&s.duration, "duration", 10*time.Second, "how long a workload is measured, each time")
	flag.DurationVar(&s.warm, "warm", 2*time.Second, "how long it runs before it is measured")
	flag.IntVar(&s.runs, "runs", 3, "how often; the systems take turns, and medians are printed")
	flag.IntVar(&s.imports, "imports", 300_000, "conversations of the import")
	flag.StringVar(&s.workloads, "workloads", "W,R,L,import", "which to run; counted runs alone")
	flag.StringVar(&s.systems, "systems", "dev,serve,pgx,redis,nats", "which to measure")
	flag.StringVar(&s.conns, "conns", "1,16,64", "connections of W and R")
	flag.StringVar(&s.dir, "dir", "", "where the systems keep their data; empty: a temporary folder")
	flag.BoolVar(&s.linked, "linked", false, "give each session of W and L an identity; not those of batches")
	flag.IntVar(&s.turns, "turns", 50_000, "turns that counted records in each way")
	flag.StringVar(&s.profiles, "profiles", "", "a folder for the profiles of counted; empty: none")
	serveNATS := flag.String("nats", "", "(internal) serve JetStream from this folder, with an fsync for each write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *serveNATS != "" {
		err = natsServer(ctx, *serveNATS)
	} else {
		err = compare(ctx, s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func (s settings) wants(list, name string) bool {
	for _, w := range strings.Split(list, ",") {
		if strings.TrimSpace(w) == name {
			return true
		}
	}
	return false
}
