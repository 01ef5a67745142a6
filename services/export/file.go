package export

import (
	"bufio"
	"errors"
	"io"
	"os"

	"github.com/turnledger/turnledger/events/session"
)

// File is the output of a replay in one format. It has a temporary name until it is complete; a file that grows has its
// final name from the start.
type File struct {
	final string
	file  *os.File // nil if the caller passed a writer
	out   *bufio.Writer

	add    func(line []byte) error
	folder *Folder                   // nil if the events themselves are written
	fold   func(session.Rules) error // nil if the events themselves are written
	flush  func() error
	closes []func() error
}

// FileConfig says what a file holds: the events of a replay, or the Turns that they fold into. Without a Path, the
// output goes to the writer To. If Grows is set, an existing file is continued at its end. Session is the only session
// whose turns are shown, or empty.
type FileConfig struct {
	Path   string
	To     io.Writer
	Format Format
	Turns  bool
	Grows  bool

	Session string
}

// partSuffix marks a file that is not complete.
const partSuffix = ".part"

// OpenFile opens a file. The caller calls Add for each line, and then Complete or Abandon.
func OpenFile(c FileConfig) (*File, error) {
	f := &File{final: c.Path, flush: func() error { return nil }}
	header, err := f.create(c)
	if err != nil {
		return nil, err
	}
	if err := f.open(c, header); err != nil {
		return nil, errors.Join(err, f.Abandon())
	}
	return f, nil
}

// create opens what is written to, and says whether that is empty.
func (f *File) create(c FileConfig) (empty bool, err error) {
	to, empty := c.To, true
	if c.Path != "" {
		name, flags := c.Path+partSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC
		// A device or a pipe is written directly: renaming a file to /dev/null would replace the device.
		if info, err := os.Stat(c.Path); c.Grows || err == nil && !info.Mode().IsRegular() {
			name, flags = c.Path, os.O_WRONLY|os.O_CREATE|os.O_APPEND
		}
		// The file holds users' texts: only the user who asked for it may read it.
		if f.file, err = os.OpenFile(name, flags, 0o600); err != nil { //nolint:gosec // the file that the user named
			return false, err
		}
		if info, err := f.file.Stat(); err == nil {
			empty = info.Size() == 0
		}
		to = f.file
	}
	f.out = bufio.NewWriterSize(to, 1<<20)
	return empty, nil
}

func (f *File) open(c FileConfig, header bool) error {
	switch {
	case c.Turns:
		folder, err := NewFolder("", c.Session)
		if err != nil {
			return err
		}
		table, err := Turns(c.Format, f.out)
		if err != nil {
			return errors.Join(err, folder.Close())
		}
		f.folder, f.add, f.closes = folder, folder.Add, []func() error{table.Close, folder.Close}
		f.fold = func(rules session.Rules) error { return folder.Write(table, rules) }
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

// Add adds a line of the replay.
func (f *File) Add(line []byte) error { return f.add(line) }

// Origins returns the sessions whose lines must be added, too, before the file is complete (see Folder.Origins).
func (f *File) Origins() []string {
	if f.folder == nil {
		return nil
	}
	return f.folder.Origins()
}

// Flush writes what was added, as far as the format allows.
func (f *File) Flush() error {
	if err := f.flush(); err != nil {
		return err
	}
	return f.out.Flush()
}

// Complete ends the file and renames it to its final name. Turns show only the metadata that rules allow.
func (f *File) Complete(rules session.Rules) error {
	var err error
	if f.fold != nil {
		err = f.fold(rules)
	}
	return f.complete(err)
}

func (f *File) complete(err error) error {
	err = errors.Join(err, f.end())
	if err == nil && f.partial() {
		err = os.Rename(f.Name(), f.final)
	}
	return err
}

// Abandon leaves the incomplete file under its temporary name, readable as far as it goes. No turns are left, since
// turns are certain only at the end.
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

// Name returns the current name of the file.
func (f *File) Name() string { return f.file.Name() }
