package cli

import (
	"fmt"
	"os"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/services/client"
	"github.com/turnledger/turnledger/services/client/importer"
	"github.com/turnledger/turnledger/services/client/progress"
)

type importCmd struct {
	Files    []string        `arg:"" name:"file" help:"Files to read; - is standard input."`
	From     importer.Source `help:"What wrote the files: lines (JSON Lines, one conversation a line) or assistants (pages of threads and messages of OpenAI's Assistants API)." enum:"lines,assistants" default:"lines"`
	Parallel count           `help:"Requests under way at once, of up to 500 turns each." default:"4"`
	remote
}

// Run records the conversations of all files.
func (c *importCmd) Run(e *Env) error {
	total, err := sizes(c.Files)
	if err != nil {
		return err
	}
	return c.dialTwice(func(first, later *client.Client) error {
		bar := progress.New(e.Err, "importing", "bytes", total)
		done, err := importer.Import(e.Ctx, c.Files, importer.Config{
			First: first, Later: later, From: c.From, Parallel: int(c.Parallel), Explain: c.explain, Passed: bar.Add,
			Failed: func(where string, err error) { bar.PrintLine(e.Err, "%s: %v", where, err) },
		})
		bar.Done()
		if c.JSON {
			_ = e.printJSON(done) // the output remembers what went wrong
		} else {
			e.print("%d conversations with %d turns: %d turns recorded, %d were there already",
				done.Conversations, done.Turns, done.Recorded, done.Existed)
		}
		if err == nil && done.Failed > 0 {
			err = fmt.Errorf("%d lines were not imported whole; mend them and run the import again", done.Failed)
		}
		return err
	})
}

// sizes returns the total size of files; -1 if it is not known.
func sizes(files []string) (total int64, err error) {
	for _, name := range files {
		if name == "-" {
			return -1, nil
		}
		info, err := os.Stat(name)
		if err != nil {
			return 0, fmt.Errorf("%w: %w", config.ErrUsage, err)
		}
		total += info.Size()
	}
	return total, nil
}
