package export

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
)

// Format of a table.
type Format string

// The formats. CSV is RFC 4180 with a header; an empty cell means null.
const (
	JSONL   Format = "jsonl"
	CSV     Format = "csv"
	Parquet Format = "parquet"
)

var (
	// ErrLine: the line does not come from a replay.
	ErrLine = errors.New("not a line of a replay")
	// ErrFormat: there is no such format.
	ErrFormat = errors.New("want jsonl, csv or parquet")
)

// Table takes rows. Close completes the table, but does not close the writer below it.
type Table[R any] interface {
	Write(r R) error
	// Flush writes the rows that the table holds, as far as its format allows.
	Flush() error
	Close() error
}

// row is the type of a table's rows: a struct whose Parquet tags name the columns. size returns about how many bytes it
// takes.
type row interface{ size() int }

// Events makes a table of events in CSV or Parquet. (As JSON Lines, events are the replay itself.) Without header a CSV
// has no header line, so that it can continue a file.
func Events(f Format, w io.Writer, header bool) (Table[EventRow], error) {
	return newTable[EventRow](f, w, heading(header))
}

// heading says whether a CSV begins with the names of its columns.
type heading bool

const withHeader heading = true

// Turns makes a table of turns.
func Turns(f Format, w io.Writer) (Table[TurnRow], error) { return newTable[TurnRow](f, w, withHeader) }

func newTable[R row](f Format, w io.Writer, header heading) (Table[R], error) {
	switch f {
	case JSONL:
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		return jsonTable[R]{e}, nil
	case CSV:
		t := csvTable[R]{csv.NewWriter(w)}
		if header {
			return t, t.w.Write(columnsOf[R]())
		}
		return t, nil
	case Parquet:
		return &parquetTable[R]{w: parquet.NewGenericWriter[R](
			w, parquet.Compression(&parquet.Snappy), parquet.CreatedBy("turnledger", "", ""),
		)}, nil
	default:
		return nil, fmt.Errorf("%w, not %q", ErrFormat, f)
	}
}

type jsonTable[R row] struct{ e *json.Encoder }

func (t jsonTable[R]) Write(r R) error { return t.e.Encode(r) }
func (t jsonTable[R]) Flush() error    { return nil }
func (t jsonTable[R]) Close() error    { return nil }

type csvTable[R row] struct{ w *csv.Writer }

func (t csvTable[R]) Write(r R) error {
	v := reflect.ValueOf(&r).Elem()
	cells := make([]string, v.NumField())
	for i := range cells {
		cells[i] = cellOf(v.Field(i).Addr().Interface())
	}
	return t.w.Write(cells)
}

func (t csvTable[R]) Flush() error {
	t.w.Flush()
	return t.w.Error()
}

func (t csvTable[R]) Close() error { return t.Flush() }

// columnsOf returns the names of a row's columns, the same as in Parquet.
func columnsOf[R row]() (names []string) {
	for f := range reflect.TypeFor[R]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("parquet"), ",")
		names = append(names, name)
	}
	return names
}

// cellOf returns the CSV cell for the field that p points to.
func cellOf(p any) string {
	switch v := p.(type) {
	case *string:
		return *v
	case **string:
		if *v == nil {
			return ""
		}
		return **v
	case *json.RawMessage:
		return string(*v)
	case *time.Time:
		if v.IsZero() {
			return ""
		}
		return v.UTC().Format(time.RFC3339Nano)
	case **time.Time:
		if *v == nil {
			return ""
		}
		return cellOf(*v)
	default:
		return fmt.Sprint(reflect.ValueOf(p).Elem())
	}
}

// parquetTable writes row groups of a bounded size, since a row group is held in memory until it is complete.
type parquetTable[R row] struct {
	w     *parquet.GenericWriter[R]
	rows  []R
	bytes int
	group int
}

const (
	// rowsAtOnce is how many rows are passed to Parquet together, which is cheaper than one by one.
	rowsAtOnce = 256
	groupRows  = 100_000
	groupBytes = 32 << 20
)

func (t *parquetTable[R]) Write(r R) error {
	t.rows = append(t.rows, r)
	t.bytes += r.size()
	t.group++
	switch {
	case t.group >= groupRows || t.bytes >= groupBytes:
		t.group, t.bytes = 0, 0
		return errors.Join(t.handOn(), t.w.Flush())
	case len(t.rows) >= rowsAtOnce:
		return t.handOn()
	default:
		return nil
	}
}

func (t *parquetTable[R]) handOn() error {
	_, err := t.w.Write(t.rows)
	clear(t.rows)
	t.rows = t.rows[:0]
	return err
}

// Flush does nothing, since only a complete Parquet file can be read.
func (t *parquetTable[R]) Flush() error { return nil }

func (t *parquetTable[R]) Close() error {
	return errors.Join(t.handOn(), t.w.Close())
}
