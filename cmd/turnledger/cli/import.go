package cli

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/turnledger/turnledger/cmd/turnledger/config"
	"github.com/turnledger/turnledger/services/client"
	"github.com/turnledger/turnledger/services/client/importer"
)

type importCmd struct {
	Files    []string        `arg:"" name:"file" help:"Files to read; - is standard input."`
	From     importer.Source `help:"What wrote the files: lines (conversations, or turns of replay --turns and export; one a line, or in a JSON array), assistants (pages of OpenAI's Assistants API), or the export of chatgpt, claude, librechat, langchain (rows of its histories) or openai-jsonl (examples of fine-tuning)." enum:"lines,assistants,chatgpt,claude,openai-jsonl,langchain,librechat" default:"lines"`
	Identity only            `help:"Link the sessions of another product's export to an identity."`
	Parallel count           `help:"Requests under way at once, of up to 500 turns each." default:"4"`
	remote
}

// Run records the conversations of all files.
func (c *importCmd) Run(e *Env) error {
	if c.Identity != "" && (c.From == importer.FromLines || c.From == importer.FromAssistants) {
		return fmt.Errorf("%w: --identity is for exports of other products: name one with --from", config.ErrUsage)
	}
	total, err := sizes(c.Files)
	if err != nil {
		return err
	}
	return c.dialTwice(func(first, later *client.Client) error {
		var bar atomic.Pointer[progress]
		bar.Store(newProgress(e.Err, "importing", "bytes", total))
		done, err := importer.Import(e.Ctx, c.Files, importer.Config{
			First: first, Later: later, From: c.From, Parallel: int(c.Parallel), Explain: c.explain,
			Identity: string(c.Identity),
			Passed:   func(bytes int64) { bar.Load().Add(bytes) },
			Failed:   func(where string, err error) { bar.Load().PrintLine(e.Err, "%s: %v", where, err) },
			Ordered: func(bytes int64) {
				bar.Load().Done()
				bar.Store(newProgress(e.Err, "importing", "bytes", bytes))
			},
		})
		bar.Load().Done()
		if other, is := errors.AsType[*importer.UnknownForm](err); is {
			return fmt.Errorf("%w: %w", config.ErrUsage, other)
		}
		if c.JSON {
			_ = e.printJSON(done) // the output remembers what went wrong
		} else {
			e.print("%d conversations with %d turns: %d turns recorded, %d were there already",
				done.Conversations, done.Turns, done.Recorded, done.Existed)
			e.printImported(done)
		}
		if err == nil && done.Failed > 0 {
			err = fmt.Errorf("%d lines were not imported whole; mend them and run the import again", done.Failed)
		}
		return err
	})
}

// printImported prints what an import left out, and what it did not report one by one.
func (e *Env) printImported(done importer.Summary) {
	for _, more := range done.More {
		e.printErr("and %s more: %s", Counted(more.Lines, "line"), more.Why)
	}
	if done.Branches > 0 {
		e.printErr("with %s of them", Counted(done.Branches, "fork"))
	}
	if done.Messages > 0 {
		var kinds []string
		out := int64(0)
		for _, kind := range slices.Sorted(maps.Keys(done.Dropped)) {
			out += done.Dropped[kind]
			kinds = append(kinds, fmt.Sprintf("%d %s", done.Dropped[kind], kind))
		}
		e.printErr("%s: %d in turns, %d left out%s", Counted(done.Messages, "message"), done.Messages-out, out,
			strings.TrimSuffix(" ("+strings.Join(kinds, ", ")+")", " ()"))
	}
	if done.Redacted > 0 {
		e.printErr("%s not imported: redacted", Counted(done.Redacted, "turn"))
	}
	if len(done.NotKept) > 0 {
		e.printErr("not kept: %s", strings.Join(done.NotKept, ", "))
	}
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
