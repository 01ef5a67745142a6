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

	"github.com/turnledger/turnledger/services/client"
)

// Exit statuses (docs/contract.md#command-line).
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// cli is the command line.
type cli struct {
	Dev         devCmd         `cmd:"" help:"Run everything on this machine."`
	Serve       serveCmd       `cmd:"" help:"Run some roles, against what the configuration names."`
	Import      importCmd      `cmd:"" help:"Record conversations from JSON Lines files."`
	Context     contextCmd     `cmd:"" help:"Show the messages that a model would be sent."`
	History     historyCmd     `cmd:"" help:"Show a session's questions and answers."`
	Explain     explainCmd     `cmd:"" help:"Show what a turn was made of, and what its prompt could see."`
	Replay      replayCmd      `cmd:"" help:"Print the log, or make a table of it."`
	Link        linkCmd        `cmd:"" help:"Link a session to an identity."`
	Redact      redactCmd      `cmd:"" help:"Redact a turn."`
	Erase       eraseCmd       `cmd:"" help:"Erase a session or an identity, and see what an erasure has reached."`
	Export      exportCmd      `cmd:"" help:"Give all turns of a person, as JSON Lines."`
	Retention   retentionCmd   `cmd:"" help:"Take out what is too old, or say what would go."`
	Projections projectionsCmd `cmd:"" help:"Look after the views."`
	Deadletters deadlettersCmd `cmd:"" help:"Look after the events that views could not apply."`
	Streams     streamsCmd     `cmd:"" help:"Look after the streams that the log is kept in."`
	Backup      backupCmd      `cmd:"" help:"Copy the log, while it is in use."`
	Restore     restoreCmd     `cmd:"" help:"Make a backup the log of a server that has none yet."`
	Keys        keysCmd        `cmd:"" help:"Make and end the keys that callers of the API show."`
	Config      configCmd      `cmd:"" help:"Show the configuration, without secrets."`
	Version     versionCmd     `cmd:"" help:"Show the version."`
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
	var c cli
	exited := -1
	parser, err := kong.New(&c,
		kong.Name("turnledger"),
		kong.Description("The conversation history that LLM pipelines trust. Start with: turnledger dev"),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { exited = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.UsageOnError(),
		kong.Resolvers(kong.ResolverFunc(fromFiles)),
	)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "turnledger:", err)
		return exitFailed
	}
	k, err := parser.Parse(args)
	if exited >= 0 { // --help
		return exited
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "turnledger: %v\nTry: turnledger --help\n", err)
		return exitUsage
	}
	out := &output{to: stdout}
	err = k.Run(&env{ctx: ctx, out: out, err: stderr})
	if err == nil && out.err != nil {
		err = fmt.Errorf("the output is not whole: %w", out.err)
	}
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errUsage), wrongArgument(err):
		_, _ = fmt.Fprintln(stderr, "turnledger:", err)
		return exitUsage
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		_, _ = fmt.Fprintln(stderr, "turnledger: stopped")
		return exitFailed
	default:
		_, _ = fmt.Fprintln(stderr, "turnledger:", err)
		return exitFailed
	}
}

// output remembers that something could not be printed: a verb has then not done what
// it was asked for.
type output struct {
	to  io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// errUsage marks a command line or configuration that can't work.
var errUsage = errors.New("wrong use")

// wrongArgument tells that the server named what is wrong with what a verb was given.
func wrongArgument(err error) bool {
	var problem *client.Error
	return errors.As(err, &problem) && len(problem.Fields) > 0
}

// env is what a verb is given: the life of the process, and the terminal.
type env struct {
	ctx      context.Context //nolint:containedctx // kong hands verbs one value; this is main's own context
	out, err io.Writer
}
