package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"

	"github.com/turnledger/turnledger/events/conversation"
	"github.com/turnledger/turnledger/services/export"
)

// replayFile is where a replay goes, in a format. A file has a temporary name until it
// is complete; one that follows grows under its own name.
type replayFile struct {
	format export.Format
	final  string // empty: standard output
	file   *os.File
	out    *bufio.Writer

	events export.Table[export.EventRow] // csv and parquet of events
	folder *export.Folder                // --turns
	rules  conversation.Rules            // by which they are folded
	turns  export.Table[export.TurnRow]
}

// sink opens what the flags name.
func (c *replayCmd) sink(e *env) (*replayFile, error) {
	f := &replayFile{format: export.Format(c.Format), final: c.Output}
	to := e.out
	header := true
	info, err := os.Stat(c.Output)
	if err == nil && info.IsDir() {
		return nil, fmt.Errorf("%w: -o %s is a folder: name a file in it", errUsage, c.Output)
	}
	if c.Output != "" {
		name, flags := c.Output+partSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC
		// A device or a pipe is written to: /dev/null must not become a file.
		if c.Follow || err == nil && !info.Mode().IsRegular() {
			name, flags = c.Output, os.O_WRONLY|os.O_CREATE|os.O_APPEND
		}
		// Texts of users: for the one who asked.
		if f.file, err = os.OpenFile(name, flags, 0o600); err != nil { //nolint:gosec // the file that the user named
			return nil, err
		}
		if info, err := f.file.Stat(); err == nil {
			header = info.Size() == 0
		}
		to = f.file
	} else if f.format == export.Parquet && isTerminal(e.out) {
		return nil, fmt.Errorf("%w: a Parquet file is not for a terminal: name a file with -o", errUsage)
	}
	f.out = bufio.NewWriterSize(to, 1<<20)
	if err := f.open(c.Turns, header); err != nil {
		return nil, errors.Join(err, f.abandon())
	}
	return f, nil
}

// partSuffix marks a file that is not complete.
const partSuffix = ".part"

func (f *replayFile) open(turns, header bool) (err error) {
	switch {
	case turns:
		if f.folder, err = export.NewFolder(""); err == nil {
			f.turns, err = export.Turns(f.format, f.out)
		}
	case f.format != export.JSONL:
		f.events, err = export.Events(f.format, f.out, header)
	}
	return err
}

// add takes a line of the replay.
func (f *replayFile) add(line []byte) error {
	switch {
	case f.folder != nil:
		return f.folder.Add(line)
	case f.events != nil:
		r, err := export.ParseEvent(line)
		if err != nil {
			return err
		}
		return f.events.Write(r)
	}
	if _, err := f.out.Write(line); err != nil {
		return err
	}
	return f.out.WriteByte('\n')
}

func (f *replayFile) flush() error {
	if f.events != nil {
		if err := f.events.Flush(); err != nil {
			return err
		}
	}
	return f.out.Flush()
}

// complete ends the file and gives it its name.
func (f *replayFile) complete() error {
	var err error
	if f.folder != nil {
		err = f.folder.Write(f.turns, f.rules)
	}
	err = errors.Join(err, f.end())
	if err == nil && f.file != nil && f.name() != f.final {
		err = os.Rename(f.name(), f.final)
	}
	return err
}

// abandon leaves what there is under the temporary name, readable as far as it goes.
// Turns are not certain before the end, so that none are left.
func (f *replayFile) abandon() error {
	err := f.end()
	if f.folder != nil && f.file != nil && f.name() != f.final {
		err = errors.Join(err, os.Remove(f.name()))
	}
	return err
}

func (f *replayFile) end() error {
	var err error
	if f.events != nil {
		err = f.events.Close()
	}
	if f.turns != nil {
		err = errors.Join(err, f.turns.Close())
	}
	if f.folder != nil {
		err = errors.Join(err, f.folder.Close())
	}
	err = errors.Join(err, f.out.Flush())
	if f.file != nil {
		err = errors.Join(err, f.file.Close())
	}
	return err
}

// name of the file as it is now.
func (f *replayFile) name() string { return f.file.Name() }
