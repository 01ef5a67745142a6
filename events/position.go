package events

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Position is a place in the log: the sequence Seq of the stream of Partition.
// Positions of different partitions have no order. Seq 0 is before the first
// event.
type Position struct {
	Partition int
	Seq       uint64
}

// String returns the outside form, "partition:sequence".
func (p Position) String() string {
	return strconv.Itoa(p.Partition) + ":" + strconv.FormatUint(p.Seq, 10)
}

// MarshalText returns the outside form.
func (p Position) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText parses the outside form.
func (p *Position) UnmarshalText(b []byte) (err error) {
	*p, err = ParsePosition(string(b))
	return err
}

// ParsePosition reads "partition:sequence". Anything else is ErrPosition.
func ParsePosition(s string) (Position, error) {
	part, seq, ok := strings.Cut(s, ":")
	k, badPartition := strconv.ParseUint(part, 10, 64)
	n, badSeq := strconv.ParseUint(seq, 10, 64)
	switch {
	case !ok, errors.Is(badPartition, strconv.ErrSyntax), errors.Is(badSeq, strconv.ErrSyntax):
		return Position{}, fmt.Errorf("%w: want partition:sequence, such as 0:42", ErrPosition)
	case badPartition != nil, k >= Buckets:
		return Position{}, fmt.Errorf("%w: the partition is out of range", ErrPosition)
	case badSeq != nil:
		return Position{}, fmt.Errorf("%w: the sequence is out of range", ErrPosition)
	}
	return Position{Partition: int(k), Seq: n}, nil
}

// ParsePositions reads a list, "0:42,1:17", of at most one position a partition.
func ParsePositions(s string) ([]Position, error) {
	var out []Position
	for part := range strings.SplitSeq(s, ",") {
		p, err := ParsePosition(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out, func(o Position) bool { return o.Partition == p.Partition }) {
			return nil, fmt.Errorf("%w: partition %d stands twice", ErrPosition, p.Partition)
		}
		out = append(out, p)
	}
	return out, nil
}

// Cursor says how far each partition was read. Reading continues after it. A partition that it does not name is read
// from the beginning.
type Cursor map[int]uint64

// NewCursor makes a cursor of positions, at most one a partition.
func NewCursor(at ...Position) Cursor {
	c := Cursor{}
	for _, p := range at {
		c.Pass(p)
	}
	return c
}

// Pass notes that everything of a partition up to a position was read.
func (c Cursor) Pass(p Position) { c[p.Partition] = max(c[p.Partition], p.Seq) }

// String returns the outside form, "0:42,1:17", which ParsePositions reads.
func (c Cursor) String() string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(c)) {
		out = append(out, Position{k, c[k]}.String())
	}
	return strings.Join(out, ",")
}
