// Command turnledger is the one binary: the server in all its roles, and the verbs
// of pipelines, analysts and operators (docs/contract.md#command-line).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/turnledger/turnledger/cmd/turnledger/cli"
	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/services/client"
)

// Exit statuses (docs/contract.md#command-line).
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// version is set by the build (-ldflags "-X main.version=…").
var version = "dev"

// commands are the command line.
type commands struct {
	Dev       devCmd   `cmd:"" help:"Run everything on this machine."`
	Serve     serveCmd `cmd:"" help:"Run some roles, against what the configuration names."`
	cli.Verbs `embed:""`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main without the process.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var c commands
	exited := -1
	parser, err := kong.New(&c, append(config.Options(),
		kong.Name("turnledger"),
		kong.Description("The conversation history that LLM pipelines trust. Start with: turnledger dev"),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { exited = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.UsageOnError(),
	)...)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "turnledger:", err)
		return exitFailed
	}
	k, err := parser.Parse(cli.Hyphened(parser.Model, args))
	if exited >= 0 { // --help
		return exited
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "turnledger: %v\nTry: turnledger --help\n", err)
		return exitUsage
	}
	cli.Unhyphened(k)
	out := &cli.Output{To: stdout}
	err = k.Run(&cli.Env{Ctx: ctx, Out: out, Err: stderr, Version: version})
	if err == nil && out.Err != nil {
		err = fmt.Errorf("the output is not whole: %w", out.Err)
	}
	if err == nil {
		return exitDone
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		_, _ = fmt.Fprintln(stderr, "turnledger: stopped")
		return exitFailed
	}
	_, _ = fmt.Fprintln(stderr, "turnledger:", cli.Shown(err.Error()))
	if errors.Is(err, config.ErrUsage) || wrongArgument(err) {
		return exitUsage
	}
	return exitFailed
}

// wrongArgument reports whether the server rejected an argument of the verb.
func wrongArgument(err error) bool {
	problem, ok := errors.AsType[*client.Error](err)
	return ok && len(problem.Fields) > 0
}
