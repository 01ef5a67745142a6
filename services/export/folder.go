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
	"github.com/turnledger/turnledger/events/session"
)

// Folder folds a replay into turns. Any later event may correct or redact a turn, so no row is certain before the end.
// Therefore Folder stores the lines in files by session, folds and sorts one file after the other, and merges the
// results. It needs memory for one file's part of the replay, and disk space for the whole replay. Texts that were
// redacted before the replay are not in the files, since the server does not send them.
type Folder struct {
	dir   string
	parts []*part
	// of is the only session that is shown, if one is: then all lines are in one file.
	of      string
	origins []string
	erased  map[string]bool // sessions
}

type part struct {
	file *os.File
	w    *bufio.Writer
}

// folderParts is the number of files.
const folderParts = 128

// NewFolder makes a folder with files below dir, or below the system's temporary folder if dir is empty. With a
// session, only that session is shown, and as a branch it begins with the turns that it shares. Else every turn is
// shown once, in the session that it stands in. The caller closes the folder.
func NewFolder(dir, session string) (*Folder, error) {
	dir, err := os.MkdirTemp(dir, "turnledger-fold-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for what is folded: %w", err)
	}
	return &Folder{dir: dir, parts: make([]*part, folderParts), of: session, erased: map[string]bool{}}, nil
}

// Add takes the next line of the replay.
func (f *Folder) Add(line []byte) error {
	e, err := parseLine(line)
	if err != nil {
		return err
	}
	if e.Type == events.TypeSessionErased {
		f.erased[e.Subject] = true
	}
	h := fnv.New32a()
	if f.of == "" {
		_, _ = h.Write([]byte(e.Subject))
	} else if e.Subject == f.of && e.Type == events.TypeSessionForked {
		if err := f.shares(line); err != nil {
			return err
		}
	}
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

// shares notes the root of the only session, and the sessions that it may share turns of.
func (f *Folder) shares(line []byte) error {
	r, err := Recorded(line)
	if fork, is := r.Fact.(*events.SessionForked); is {
		f.origins = append(f.origins, fork.Root)
		for _, g := range fork.Segments {
			f.origins = append(f.origins, g.SessionID)
		}
		slices.Sort(f.origins)
		f.origins = slices.Compact(f.origins)
	}
	return err
}

// Origins returns the sessions whose lines must be added, too: the only session has the identity of the one, and shares
// turns of the others.
func (f *Folder) Origins() []string { return f.origins }

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

// Write folds what was added into a table. Sessions are in the order of their first turns, and each session's turns in
// their order. The rules say which metadata they show.
func (f *Folder) Write(out Table[TurnRow], rules session.Rules) error {
	var parts []*sorted
	for _, p := range f.parts {
		if p == nil {
			continue
		}
		s, err := p.sort(rules, f.of, f.erased)
		if err != nil {
			return err
		}
		parts = append(parts, s)
	}
	return merge(parts, out.Write)
}

// rewind writes the buffer to the file, and goes back to the file's beginning.
func (p *part) rewind() error {
	err := p.w.Flush()
	if err == nil {
		_, err = p.file.Seek(0, io.SeekStart)
	}
	return err
}

// lines yields the stored lines. Turns keep references into them.
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

// Close deletes the files.
func (f *Folder) Close() error {
	for _, p := range f.parts {
		if p != nil {
			_ = p.file.Close() // the file is deleted with the folder
		}
	}
	return os.RemoveAll(f.dir)
}

// sorted is a part after folding, with its rows in order. Its first row has been read already.
type sorted struct {
	row  sortedRow
	rows *gob.Decoder
}

// sortedRow is a row with the position of its session's first turn. No two sessions share that position.
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

// sort folds the part, and replaces its lines by the rows. Branches whose root is erased have no identity.
func (p *part) sort(rules session.Rules, only string, erased map[string]bool) (*sorted, error) {
	folded, err := fold(p.lines, rules)
	if err != nil {
		return nil, err
	}
	if only != "" {
		folded.only(only)
	}
	for _, s := range folded.states {
		if erased[s.Fork().Root] {
			s.Identity = ""
		}
	}
	rows := folded.rows()
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
	return &sorted{rows: gob.NewDecoder(bufio.NewReaderSize(p.file, 64<<10))}, nil
}

// next reads the next row, and reports whether there is one.
func (s *sorted) next() (bool, error) {
	s.row = sortedRow{} // gob does not overwrite fields with zero values
	err := s.rows.Decode(&s.row)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read back what is folded: %w", err)
	}
	return err == nil, nil
}

// merge writes the rows of all parts in order.
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
