// Package cli has the verbs of the command line that talk to a running server, or need none
// (docs/contract.md#command-line): one file for each verb. The package above it connects the parts of a server.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"unicode"

	"golang.org/x/term"
)

// Verbs are the verbs in the order of the help.
type Verbs struct {
	Import      importCmd      `cmd:"" help:"Record conversations from files: JSON Lines, or what OpenAI's Assistants API gave."`
	Chat        chatCmd        `cmd:"" help:"Talk with the model in a thread, line by line; leave it, and join it again."`
	Context     contextCmd     `cmd:"" help:"Show the messages that a model would be sent."`
	History     historyCmd     `cmd:"" help:"Show a session's questions and answers."`
	Explain     explainCmd     `cmd:"" help:"Show what a turn was made of, and what its prompt could see."`
	Whatif      whatifCmd      `cmd:"" help:"Show what models were told before their answers, and what they would have been told with other settings."`
	Replay      replayCmd      `cmd:"" help:"Print the log, or make a table of it."`
	Sessions    sessionsCmd    `cmd:"" help:"List sessions, look at one, and describe it."`
	Search      searchCmd      `cmd:"" help:"Find turns by their words or their meaning."`
	Similar     similarCmd     `cmd:"" help:"Find turns whose question is similar."`
	Stats       statsCmd       `cmd:"" help:"Count turns over time."`
	Summaries   summariesCmd   `cmd:"" help:"List the valid summaries of a session, or record one."`
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
	Scrub       scrubCmd       `cmd:"" help:"Before a NATS server is started: overwrite what it had begun to erase when it was killed."`
	MCP         mcpCmd         `cmd:"" name:"mcp" help:"Let an agent read conversations: the Model Context Protocol on standard input and output."`
	Keys        keysCmd        `cmd:"" help:"Make and end the keys that callers of the API show."`
	Config      configCmd      `cmd:"" help:"Show the configuration, without secrets."`
	Version     versionCmd     `cmd:"" help:"Show the version."`
}

// Env is the environment of a verb: the process's context, the terminal, and the program's version.
type Env struct {
	Ctx     context.Context //nolint:containedctx // kong hands verbs one value; this is main's own context
	Out     *Output
	Err     io.Writer
	Version string
}

// Output remembers that a write failed: the verb has then not done its work.
type Output struct {
	To  io.Writer
	Err error
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	n, err := o.To.Write(p)
	if o.Err == nil {
		o.Err = err
	}
	return n, err
}

// Unwrap returns what it writes to.
func (o *Output) Unwrap() io.Writer { return o.To }

// print prints a line for people, without what a terminal would obey.
func (e *Env) print(format string, args ...any) {
	_, _ = fmt.Fprintln(e.Out, Shown(fmt.Sprintf(format, args...)))
}

// Shown returns a text with a space for each control character but newlines and tabs. Texts of turns may hold any.
func Shown(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return ' '
		}
		return r
	}, text)
}

// printErr prints a line to standard error, without what a terminal would obey.
func (e *Env) printErr(format string, args ...any) {
	_, _ = fmt.Fprintln(e.Err, Shown(fmt.Sprintf(format, args...)))
}

// printJSON prints a value on several lines.
func (e *Env) printJSON(v any) error {
	enc := json.NewEncoder(e.Out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// table prints rows of cells below a heading, whose cells are separated by tabs.
func table[T any](e *Env, heading string, rows []T, cells func(T) []any) {
	w := tabwriter.NewWriter(e.Out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, heading)
	for _, r := range rows {
		row := cells(r)
		_, _ = fmt.Fprintf(w, strings.Repeat("%v\t", len(row)-1)+"%v\n", row...)
	}
	_ = w.Flush() // the output remembers what went wrong
}

// confirm asks on the terminal, if there is one, whether to continue. Anything but a yes returns an error.
func (e *Env) confirm(yes bool, question, otherwise string) error {
	if yes || !term.IsTerminal(int(os.Stdin.Fd())) {
		return nil
	}
	_, _ = fmt.Fprintf(e.Err, "%s [y/N] ", question)
	var answer string
	err := interruptible(e.Ctx, func() error {
		_, _ = fmt.Fscanln(os.Stdin, &answer) // no answer counts as a no
		return nil
	})
	if err == nil && (strings.EqualFold(answer, "y") || strings.EqualFold(answer, "yes")) {
		return nil
	}
	return errors.Join(err, errors.New(otherwise))
}

// interruptible runs f, which may wait for a terminal, and abandons it when ctx ends.
func interruptible(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
