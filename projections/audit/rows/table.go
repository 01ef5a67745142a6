package rows

import (
	"context"
	"encoding/binary"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Column is a column of a table, with its type and how the field of a row is written.
type Column[T any] struct {
	name, typ string
	put       func(*Buffer, T)
}

// Col makes a column.
func Col[T any](name, typ string, put func(*Buffer, T)) Column[T] { return Column[T]{name, typ, put} }

// Table says how values of T are rows of a table. Key is the column by which rows are found again.
type Table[T any] struct {
	Name, Key string
	Columns   []Column[T]
}

// Only returns the table with some of its columns, in the table's order.
func (t Table[T]) Only(names ...string) Table[T] {
	some := Table[T]{Name: t.Name, Key: t.Key}
	for _, c := range t.Columns {
		for _, name := range names {
			if c.name == name {
				some.Columns = append(some.Columns, c)
			}
		}
	}
	return some
}

func (t Table[T]) list(of func(i int, c Column[T]) string) string {
	var parts []string
	for i, c := range t.Columns {
		if part := of(i, c); part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ", ")
}

// Names lists the columns.
func (t Table[T]) Names() string { return t.list(func(_ int, c Column[T]) string { return c.name }) }

// unnest makes rows, called r, of the statement's parameters, which are the columns as arrays.
func (t Table[T]) unnest() string {
	arrays := t.list(func(i int, c Column[T]) string { return "$" + strconv.Itoa(i+1) + "::" + c.typ + "[]" })
	return "unnest(" + arrays + ") as r (" + t.Names() + ")"
}

// assign sets all columns but the key to those of another row.
func (t Table[T]) assign(from string) string {
	return t.list(func(_ int, c Column[T]) string {
		if c.name == t.Key {
			return ""
		}
		return c.name + " = " + from + "." + c.name
	})
}

// Merge inserts rows, and overwrites those that stand already.
func (t Table[T]) Merge(ctx context.Context, tx pgx.Tx, schema string, rows []T) error {
	return t.withRows(ctx, tx, "insert into "+schema+"."+t.Name+" ("+t.Names()+") select * from "+t.unnest()+
		" on conflict ("+t.Key+") do update set "+t.assign("excluded"), rows)
}

// Update overwrites the table's columns in rows that stand already, and leaves out rows that don't.
func (t Table[T]) Update(ctx context.Context, tx pgx.Tx, schema string, rows []T) error {
	return t.withRows(ctx, tx, "update "+schema+"."+t.Name+" t set "+t.assign("r")+" from "+t.unnest()+
		" where t."+t.Key+" = r."+t.Key, rows)
}

// maxArrays bounds the bytes that one statement is given: PostgreSQL takes no more than 1 GB.
const maxArrays = 8 << 20

// withRows runs a statement whose parameters are the columns of rows, as arrays for unnest: once, or more often if the
// rows are large. Arrays instead of a staging table, since emptying a temporary table costs 0.5 to 1 ms at every
// commit.
func (t Table[T]) withRows(ctx context.Context, tx pgx.Tx, sql string, rows []T) error {
	if len(rows) == 0 {
		return nil
	}
	stmt, err := tx.Conn().Prepare(ctx, sql, sql)
	if err != nil {
		return err
	}
	arrays, fit := t.arrays(tx.Conn().TypeMap(), stmt.ParamOIDs, rows)
	if fit {
		_, err := tx.Conn().PgConn().ExecPrepared(ctx, stmt.Name, arrays, []int16{pgx.BinaryFormatCode}, nil).Close()
		return err
	}
	if err := t.withRows(ctx, tx, sql, rows[:len(rows)/2]); err != nil {
		return err
	}
	return t.withRows(ctx, tx, sql, rows[len(rows)/2:])
}

// arrays are the columns of rows, each in the binary form of a one-dimensional array. They do not fit where several
// rows are above maxArrays together.
func (t Table[T]) arrays(types *pgtype.Map, oids []uint32, rows []T) (arrays [][]byte, fit bool) {
	bytes := 0
	for i, c := range t.Columns {
		var element uint32
		if array, ok := types.TypeForOID(oids[i]); ok {
			element = array.Codec.(*pgtype.ArrayCodec).ElementType.OID
		}
		b := make(Buffer, 0, 1024)
		// Dimensions, whether there are nulls, the type of the elements, their number, and the first one's index.
		for _, n := range []uint32{1, 1, element, uint32(len(rows)), 1} { //nolint:gosec // rows of a batch
			b = binary.BigEndian.AppendUint32(b, n)
		}
		for _, row := range rows {
			c.put(&b, row)
			if bytes+len(b) > maxArrays && len(rows) > 1 {
				return nil, false
			}
		}
		bytes += len(b)
		arrays = append(arrays, b)
	}
	return arrays, true
}

// Copy streams new rows into the table.
func (t Table[T]) Copy(ctx context.Context, tx pgx.Tx, schema string, rows []T) error {
	if len(rows) == 0 {
		return nil
	}
	s := &stream[T]{columns: t.Columns, rows: rows, buf: buffers.Get().(*Buffer)}
	*s.buf = append((*s.buf)[:0], "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	sql := "copy " + schema + "." + t.Name + " (" + t.Names() + ") from stdin binary"
	if _, err := tx.Conn().PgConn().CopyFrom(ctx, s, sql); err != nil {
		return err // CopyFrom may still be reading the stream after the connection broke
	}
	buffers.Put(s.buf)
	return nil
}

// chunk is what a COPY message of pgx holds.
const chunk = 64 << 10

var buffers = sync.Pool{New: func() any { b := make(Buffer, 0, 2*chunk); return &b }}

// stream is rows in PostgreSQL's binary COPY form. Each row is encoded when the connection asks for more, so that the
// server reads one part while the next is made, and no batch stands twice in memory.
type stream[T any] struct {
	columns []Column[T]
	rows    []T
	ended   bool

	buf  *Buffer
	sent int
}

// Read implements io.Reader.
func (s *stream[T]) Read(p []byte) (int, error) {
	if s.sent == len(*s.buf) {
		if s.ended {
			return 0, io.EOF
		}
		*s.buf, s.sent = (*s.buf)[:0], 0
	}
	for !s.ended && len(*s.buf)-s.sent < chunk {
		if s.ended = len(s.rows) == 0; s.ended {
			s.buf.int16(-1)
			break
		}
		s.buf.int16(len(s.columns))
		for _, c := range s.columns {
			c.put(s.buf, s.rows[0])
		}
		s.rows = s.rows[1:]
	}
	n := copy(p, (*s.buf)[s.sent:])
	s.sent += n
	return n, nil
}
