package export

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/gob"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

// Folder folds a replay into turns. A turn may be corrected or redacted by any later event, so that no row is certain
// before the end: the lines are put aside in files that hold some sessions each, folded and sorted file by file, and
// merged. Memory is a file's part of the replay, disk is the replay once more while it runs. Texts that were redacted
// before the replay are not in the files, since the server does not send them.
type Folder struct {
	dir   string
	parts []*part
}

type part struct {
	file *os.File
	w    *bufio.Writer
}

// folderParts is how many files there are.
const folderParts = 128

// NewFolder makes a folder with files below dir (the system's temporary folder, if
// empty); it is to be closed.
func NewFolder(dir string) (*Folder, error) {
	dir, err := os.MkdirTemp(dir, "turnledger-fold-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for what is folded: %w", err)
	}
	return &Folder{dir: dir, parts: make([]*part, folderParts)}, nil
}

// Add takes the next line of the replay.
func (f *Folder) Add(line []byte) error {
	e, err := parseLine(line)
	if err != nil {
		return err
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(e.Subject))
	p, err := f.part(int(h.Sum32() % folderParts))
	if err != nil {
		return err
	}
	_, err = p.w.Write(line)
	if err == nil && !bytes.HasSuffix(line, []byte("\n")) {
		err = p.w.WriteByte('\n')
	}
	if err != nil {
		return fmt.Errorf("put aside what is folded: %w", err)
	}
	return nil
}

func (f *Folder) part(k int) (*part, error) {
	if f.parts[k] == nil {
		file, err := os.OpenFile(filepath.Join(f.dir, strconv.Itoa(k)), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, fmt.Errorf("put aside what is folded: %w", err)
		}
		f.parts[k] = &part{file: file, w: bufio.NewWriterSize(file, 64<<10)}
	}
	return f.parts[k], nil
}

// Write folds what was added into a table: the sessions in the order of their first
// turns, each with its turns in theirs. The rules say which metadata they show.
func (f *Folder) Write(out Table[TurnRow], rules conversation.Rules) error {
	var parts []*sorted
	for _, p := range f.parts {
		if p == nil {
			continue
		}
		s, err := p.sort(rules)
		if err != nil {
			return err
		}
		parts = append(parts, s)
	}
	return merge(parts, out.Write)
}

// rewind writes what is held, and goes to the file's beginning.
func (p *part) rewind() error {
	err := p.w.Flush()
	if err == nil {
		_, err = p.file.Seek(0, io.SeekStart)
	}
	return err
}

// lines yields the lines that were put aside. The turns keep parts of them.
func (p *part) lines(yield func([]byte, error) bool) {
	err := p.rewind()
	for r := bufio.NewReaderSize(p.file, 256<<10); err == nil; {
		var line []byte
		if line, err = r.ReadBytes('\n'); err == nil && !yield(line, nil) {
			return
		}
	}
	if !errors.Is(err, io.EOF) {
		yield(nil, fmt.Errorf("fold: %w", err))
	}
}

// Close takes the files away.
func (f *Folder) Close() error {
	for _, p := range f.parts {
		if p != nil {
			_ = p.file.Close() // it goes with the folder
		}
	}
	return os.RemoveAll(f.dir)
}

// sorted is a part when it is folded: rows in order, of which the first is read.
type sorted struct {
	row  sortedRow
	rest *gob.Decoder
}

// sortedRow is a row with where the first turn of its session stands. No two sessions
// have that in common.
type sortedRow struct {
	At    time.Time
	First events.Position
	Row   TurnRow
}

func (r sortedRow) compare(other sortedRow) int {
	return cmp.Or(
		r.At.Compare(other.At), cmp.Compare(r.First.Partition, other.First.Partition),
		cmp.Compare(r.First.Seq, other.First.Seq),
	)
}

// sort folds the part, and puts the rows in the place of its lines.
func (p *part) sort(rules conversation.Rules) (*sorted, error) {
	rows, err := fold(p.lines, rules)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(rows, sortedRow.compare)
	if err = p.rewind(); err == nil {
		err = p.file.Truncate(0)
	}
	for enc := gob.NewEncoder(p.w); err == nil && len(rows) > 0; rows = rows[1:] {
		err = enc.Encode(rows[0])
	}
	if err == nil {
		err = p.rewind()
	}
	if err != nil {
		return nil, fmt.Errorf("put aside what is folded: %w", err)
	}
	return &sorted{rest: gob.NewDecoder(bufio.NewReaderSize(p.file, 64<<10))}, nil
}

// next reads the next row, and reports whether there is one.
func (s *sorted) next() (bool, error) {
	s.row = sortedRow{} // gob leaves out what is zero
	err := s.rest.Decode(&s.row)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read back what is folded: %w", err)
	}
	return err == nil, nil
}

// merge hands on the rows of all parts in order.
func merge(parts []*sorted, write func(TurnRow) error) error {
	open := parts[:0]
	for _, s := range parts {
		more, err := s.next()
		if err != nil {
			return err
		}
		if more {
			open = append(open, s)
		}
	}
	for len(open) > 0 {
		first := slices.MinFunc(open, func(a, b *sorted) int { return a.row.compare(b.row) })
		if err := write(first.row.Row); err != nil {
			return err
		}
		more, err := first.next()
		if err != nil {
			return err
		}
		if !more {
			open = slices.DeleteFunc(open, func(s *sorted) bool { return s == first })
		}
	}
	return nil
}
