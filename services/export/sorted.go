package export

import (
	"bufio"
	"cmp"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/turnledger/turnledger/events"
	"github.com/turnledger/turnledger/events/conversation"
)

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
