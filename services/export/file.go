package export

import (
	"bufio"
	"errors"
	"io"
	"os"

	"github.com/turnledger/turnledger/events/conversation"
)

// File is where a replay goes, in a format. It has a temporary name until it is complete; one that grows has its own
// from the start.
type File struct {
	final string
	file  *os.File // nil: a writer of somebody else
	out   *bufio.Writer

	add    func(line []byte) error
	fold   func(conversation.Rules) error // nil where the events themselves are written
	flush  func() error
	closes []func() error
}

// FileConfig says what a file is made of: the events of a replay, or the Turns that they fold into. Without a Path the
// file is written To a writer. If Grows is set, an existing file is continued at its end.
type FileConfig struct {
	Path   string
	To     io.Writer
	Format Format
	Turns  bool
	Grows  bool
}

// partSuffix marks a file that is not complete.
const partSuffix = ".part"

// OpenFile opens a file, for Add and then Complete or Abandon.
func OpenFile(c FileConfig) (*File, error) {
	f := &File{final: c.Path, flush: func() error { return nil }}
	to, header := c.To, true
	if c.Path != "" {
		name, flags := c.Path+partSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC
		// A device or a pipe is written to: /dev/null must not become a file.
		if info, err := os.Stat(c.Path); c.Grows || err == nil && !info.Mode().IsRegular() {
			name, flags = c.Path, os.O_WRONLY|os.O_CREATE|os.O_APPEND
		}
		var err error
		// Texts of users: for the one who asked.
		if f.file, err = os.OpenFile(name, flags, 0o600); err != nil { //nolint:gosec // the file that the user named
			return nil, err
		}
		if info, err := f.file.Stat(); err == nil {
			header = info.Size() == 0
		}
		to = f.file
	}
	f.out = bufio.NewWriterSize(to, 1<<20)
	if err := f.open(c, header); err != nil {
		return nil, errors.Join(err, f.Abandon())
	}
	return f, nil
}

func (f *File) open(c FileConfig, header bool) error {
	switch {
	case c.Turns:
		folder, err := NewFolder("")
		if err != nil {
			return err
		}
		table, err := Turns(c.Format, f.out)
		if err != nil {
			return errors.Join(err, folder.Close())
		}
		f.add, f.closes = folder.Add, []func() error{table.Close, folder.Close}
		f.fold = func(rules conversation.Rules) error { return folder.Write(table, rules) }
	case c.Format != JSONL:
		table, err := Events(c.Format, f.out, header)
		if err != nil {
			return err
		}
		f.flush, f.closes = table.Flush, []func() error{table.Close}
		f.add = func(line []byte) error {
			r, err := ParseEvent(line)
			if err != nil {
				return err
			}
			return table.Write(r)
		}
	default:
		f.add = func(line []byte) error {
			if _, err := f.out.Write(line); err != nil {
				return err
			}
			return f.out.WriteByte('\n')
		}
	}
	return nil
}

// Add takes a line of the replay.
func (f *File) Add(line []byte) error { return f.add(line) }

// Flush hands on what was added, as far as the format allows.
func (f *File) Flush() error {
	if err := f.flush(); err != nil {
		return err
	}
	return f.out.Flush()
}

// Complete ends the file and gives it its name. Turns show the metadata that rules allow.
func (f *File) Complete(rules conversation.Rules) error {
	var err error
	if f.fold != nil {
		err = f.fold(rules)
	}
	err = errors.Join(err, f.end())
	if err == nil && f.partial() {
		err = os.Rename(f.Name(), f.final)
	}
	return err
}

// Abandon leaves what there is under the temporary name, readable as far as it goes.
// Turns are not certain before the end, so that none are left.
func (f *File) Abandon() error {
	err := f.end()
	if f.fold != nil && f.partial() {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

func (f *File) end() (err error) {
	for _, c := range f.closes {
		err = errors.Join(err, c())
	}
	err = errors.Join(err, f.out.Flush())
	if f.file != nil {
		err = errors.Join(err, f.file.Close())
	}
	return err
}

func (f *File) partial() bool { return f.file != nil && f.Name() != f.final }

// Name of the file as it is now.
func (f *File) Name() string { return f.file.Name() }
