package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

type importCmd struct {
	Files    []string `arg:"" name:"file" help:"JSON Lines files, one conversation a line; - is standard input."`
	Parallel int      `help:"Conversations recorded at once." default:"16"`
	remote
}

// Run records the conversations of all files. A line that can't be recorded is
// reported and the rest goes in; running it twice changes nothing.
func (c *importCmd) Run(e *env) error {
	if c.Parallel < 1 {
		return fmt.Errorf("%w: --parallel must be at least 1", errUsage)
	}
	total, err := sizes(c.Files)
	if err != nil {
		return err
	}
	rec, err := c.recorder()
	if err != nil {
		return err
	}
	im := &importer{rec: rec, seen: map[string][32]byte{}, report: e.err, bar: newProgress(e.err, "importing", unitBytes, total)}
	err = im.files(e.ctx, c.Files, c.Parallel)
	im.bar.done()
	if c.JSON {
		if err := printJSON(e.out, im.summary()); err != nil {
			return err
		}
	} else {
		_, _ = fmt.Fprintf(e.out, "%d conversations with %d turns: %d turns recorded, %d were there already\n",
			im.conversations.Load(), im.turns.Load(), im.recorded.Load(), im.there.Load())
	}
	if err == nil && im.bad.Load() > 0 {
		err = fmt.Errorf("%d lines were not imported whole; mend them and run the import again", im.bad.Load())
	}
	return err
}

// recorder writes turns; the Go client is one.
type recorder interface {
	start(ctx context.Context, session string, t turnIn) (turnID string, duplicate bool, err error)
	finalize(ctx context.Context, session, turnID string, t turnIn) (duplicate bool, err error)
}

// importer is one run of import.
type importer struct {
	rec    recorder
	bar    *progress
	report io.Writer

	seen map[string][32]byte

	conversations, turns, recorded, there, bad atomic.Int64
}

func (im *importer) summary() map[string]int64 {
	return map[string]int64{
		"conversations": im.conversations.Load(), "turns": im.turns.Load(),
		"turns_recorded": im.recorded.Load(), "turns_there": im.there.Load(), "lines_failed": im.bad.Load(),
	}
}

func sizes(files []string) (total int64, err error) {
	for _, name := range files {
		if name == "-" {
			return -1, nil
		}
		info, err := os.Stat(name)
		if err != nil {
			return 0, fmt.Errorf("%w: %w", errUsage, err)
		}
		total += info.Size()
	}
	return total, nil
}

// line is one conversation on its way in, or what is wrong with it.
type line struct {
	where   string
	size    int64
	session string
	turns   []turnIn
	err     error
}

// files reads one file after the other, and records several conversations at once.
func (im *importer) files(ctx context.Context, files []string, parallel int) error {
	lines := make(chan line, parallel)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return interruptible(ctx, func() error {
			defer close(lines)
			for _, name := range files {
				if err := im.read(ctx, name, lines); err != nil {
					return err
				}
			}
			return nil
		})
	})
	for range parallel {
		g.Go(func() error {
			for {
				select {
				case l, more := <-lines:
					if !more {
						return nil
					}
					if err := im.line(ctx, l); err != nil {
						return err
					}
					im.bar.add(l.size)
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
	}
	return g.Wait()
}

// interruptible runs what may wait for a terminal, and leaves it there when ctx ends.
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

// read gives the lines of a file that are not empty, in order, a conversation once. A
// last line without a line feed is one too.
func (im *importer) read(ctx context.Context, name string, out chan<- line) error {
	f := os.Stdin
	if name != "-" {
		var err error
		if f, err = os.Open(name); err != nil { //nolint:gosec // the file that the user named
			return err
		}
		defer func() { _ = f.Close() }()
	}
	r := bufio.NewReaderSize(f, 1<<20)
	for n := 1; ; n++ {
		text, err := r.ReadBytes('\n')
		l := line{where: fmt.Sprintf("%s:%d", name, n), size: int64(len(text))}
		if n == 1 {
			text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			l.session, l.turns, l.err = parseConversation(text)
			if l.err == nil {
				l.err = im.once(l.session, text)
			}
			select {
			case out <- l:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
	}
}

// line records one conversation. What is wrong with the line is reported; only
// what ends the run is an error.
func (im *importer) line(ctx context.Context, l line) error {
	err := l.err
	if errors.Is(err, errSameLine) {
		return nil
	}
	if err == nil {
		im.conversations.Add(1)
		im.turns.Add(int64(len(l.turns)))
		err = im.record(ctx, l.session, l.turns)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, errUnreachable) {
		return err
	}
	if err != nil {
		im.bad.Add(1)
		im.bar.say(im.report, "%s: %v", l.where, err)
	}
	return nil
}

var errSameLine = errors.New("the same line again")

// once refuses a second conversation under the same id: its turns would be taken
// for those of the first.
func (im *importer) once(session string, text []byte) error {
	sum := sha256.Sum256(text)
	before, ok := im.seen[session]
	switch {
	case !ok:
		im.seen[session] = sum
		return nil
	case before == sum:
		return errSameLine
	default:
		return errors.New("another conversation with this conversation_id stands before it: give it an id of its own")
	}
}

// record writes the turns one after the other, since their order is that of their
// starts.
func (im *importer) record(ctx context.Context, session string, turns []turnIn) error {
	for i, t := range turns {
		id, duplicate, err := im.rec.start(ctx, session, t)
		if err != nil {
			return fmt.Errorf("turn %d: %w", i+1, err)
		}
		if t.answer != nil {
			again, err := im.rec.finalize(ctx, session, id, t)
			if err != nil {
				return fmt.Errorf("turn %d: %w", i+1, err)
			}
			duplicate = duplicate && again
		}
		if duplicate {
			im.there.Add(1)
		} else {
			im.recorded.Add(1)
		}
	}
	return nil
}
