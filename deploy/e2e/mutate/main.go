// Command mutate asks whether the tests notice when the product is wrong. It draws small faults (a condition turned, an
// error dropped, a wait removed, …) over all packages of the product, and has the tests run on each of them.
//
//	mutate draw -seed 36 -n 50 -C CHECKOUT >mutations.txt
//	mutate find [-C CHECKOUT] [-list mutations.txt] [-only 3,17]
//	mutate run [-C CHECKOUT] [-list mutations.txt] [-only 3,17] [-limit 10m] [-race]
//	mutate run -only 3 [-C CHECKOUT] -- make test
//
// A fault is named by its function and by the text of its statement, not by a line, so that a list that was drawn once
// is good for later trees: find says where each is now, and which have no place any more. A fault is applied by an
// overlay of the go command: nothing in the checkout changes. run has the tests of the fault's package run, then those
// of the packages that import it, the closest first, until a test fails that passes without the fault. With a command
// behind --, run has that decide instead, which is for whole lanes.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := fmt.Errorf("usage: mutate draw|find|run [flags]")
	switch {
	case len(os.Args) > 1 && os.Args[1] == "draw":
		err = drawing(ctx, os.Args[2:], os.Stdout)
	case len(os.Args) > 1 && (os.Args[1] == "find" || os.Args[1] == "run"):
		err = running(ctx, os.Args[1], os.Args[2:], os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop is called
	}
}

func drawing(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("draw", flag.ExitOnError)
	dir := flags.String("C", ".", "the checkout")
	seed := flags.Uint64("seed", 1, "the seed")
	n := flags.Int("n", 50, "how many")
	without := flags.String("without", "", "numbers of draws that are left out, since no test can notice them")
	_ = flags.Parse(args) // it exits
	left, err := numbers(*without)
	if err != nil {
		return err
	}
	return draw(ctx, *dir, *seed, *n, left, out)
}

// running does what the command find or run says, with the mutations of a list.
func running(ctx context.Context, command string, args []string, out io.Writer) error {
	flags := flag.NewFlagSet(command, flag.ExitOnError)
	r := runner{out: out}
	flags.StringVar(&r.dir, "C", ".", "the checkout")
	list := flags.String("list", "mutations.txt", "the list that draw has written")
	only := flags.String("only", "", "numbers of the mutations to run, such as 3,17; all by default")
	flags.DurationVar(&r.limit, "limit", 10*time.Minute, "how long the tests of one package may take")
	flags.BoolVar(&r.race, "race", false, "run tests with the race detector")
	_ = flags.Parse(args) // it exits
	r.command = flags.Args()
	chosen, err := numbers(*only)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(*list)
	if err != nil {
		return err
	}
	all, err := parse(string(text))
	if err != nil {
		return err
	}
	if command == "find" {
		return find(r.dir, all, chosen, out)
	}
	return r.run(ctx, all, chosen)
}

// numbers reads numbers with commas between them.
func numbers(text string) (map[int]bool, error) {
	out := map[int]bool{}
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, err
		}
		out[n] = true
	}
	return out, nil
}
