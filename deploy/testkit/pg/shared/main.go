// Command shared runs a command, the tests of several packages, beside one PostgreSQL for all of them.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/turnledger/turnledger/deploy/testkit/pg"
)

func main() {
	code, err := run(context.Background(), os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "shared:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// run returns the command's exit status. An interrupt reaches the command, too, and the server ends after it.
func run(ctx context.Context, args []string) (code int, err error) {
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM)
	url, stop, err := pg.Shared(ctx)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), pg.Variable+"="+url)
	err = cmd.Run()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(failed.ExitCode(), 1), nil
	}
	return 0, err
}
