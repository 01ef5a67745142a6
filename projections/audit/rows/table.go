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

// Column is a column of a table: its type, and how a row's field is written.
type Column[T any] struct {
	name, typ string
	put       func(*Buffer, T)
	// literal, if set, writes the field as a text, since an array can't be an element of an array.
	literal func(T) string
}

// Col makes a column.
func Col[T any](name, typ string, put func(*Buffer, T)) Column[T] {
	return Column[T]{name: name, typ: typ, put: put}
}

// ColInts makes a column of arrays of integers.
func ColInts[T any](name string, of func(T) []int32) Column[T] {
	return Column[T]{name, "int4[]", func(b *Buffer, row T) { b.Ints(of(row)) },
		func(row T) string { return literal(of(row)) }}
}

// Table says how values of T become rows of a table. Key is the column that identifies a row.
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

// unnest returns SQL that makes rows, called r, from the statement's parameters: one array for each column.
func (t Table[T]) unnest() string {
	arrays := t.list(func(i int, c Column[T]) string {
		typ := c.typ
		if c.literal != nil {
			typ = "text"
		}
		return "$" + strconv.Itoa(i+1) + "::" + typ + "[]"
	})
	return "unnest(" + arrays + ") as r (" + t.Names() + ")"
}

// selected lists the columns of the rows that unnest makes, each with its type.
func (t Table[T]) selected() string {
	return t.list(func(_ int, c Column[T]) string {
		if c.literal != nil {
			return "r." + c.name + "::" + c.typ
		}
		return "r." + c.name
	})
}

// assign returns SQL that sets all columns but the key to those of another row.
func (t Table[T]) assign(from string) string {
	return t.list(func(_ int, c Column[T]) string {
		if c.name == t.Key {
			return ""
		}
		return c.name + " = " + from + "." + c.name
	})
}

// Merge inserts rows, and overwrites existing ones.
func (t Table[T]) Merge(ctx context.Context, tx pgx.Tx, schema string, rows []T) error {
	return t.withRows(ctx, tx, "insert into "+schema+"."+t.Name+" ("+t.Names()+") select "+t.selected()+
		" from "+t.unnest()+" on conflict ("+t.Key+") do update set "+t.assign("excluded"), rows)
}

// Update overwrites the table's columns in existing rows, and skips rows that don't exist.
func (t Table[T]) Update(ctx context.Context, tx pgx.Tx, schema string, rows []T) error {
	return t.withRows(ctx, tx, "update "+schema+"."+t.Name+" t set "+t.assign("r")+" from "+t.unnest()+
		" where t."+t.Key+" = r."+t.Key, rows)
}

// maxArrays bounds the bytes of one statement's arrays: PostgreSQL accepts at most 1 GB.
const maxArrays = 8 << 20

// withRows runs a statement whose parameters are the columns of rows, as arrays for unnest; several times if the rows
// are large. It uses arrays instead of a staging table, since emptying a temporary table costs 0.5 to 1 ms at every
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

// arrays returns the columns of rows, each in the binary form of a one-dimensional array. fit is false if several rows
// together exceed maxArrays.
func (t Table[T]) arrays(types *pgtype.Map, oids []uint32, rows []T) (arrays [][]byte, fit bool) {
	bytes := 0
	for i, c := range t.Columns {
		var element uint32
		if array, ok := types.TypeForOID(oids[i]); ok {
			element = array.Codec.(*pgtype.ArrayCodec).ElementType.OID
		}
		b := make(Buffer, 0, 1024)
		// The array's header: dimensions, whether there are nulls, the element type, the number of elements, the first
		// index.
		for _, n := range []uint32{1, 1, element, uint32(len(rows)), 1} { //nolint:gosec // rows of a batch
			b = binary.BigEndian.AppendUint32(b, n)
		}
		for _, row := range rows {
			if c.literal != nil {
				b.Optional(c.literal(row))
			} else {
				c.put(&b, row)
			}
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

// chunk is the size of a COPY message of pgx.
const chunk = 64 << 10

var buffers = sync.Pool{New: func() any { b := make(Buffer, 0, 2*chunk); return &b }}

// stream encodes rows in PostgreSQL's binary COPY form. It encodes each row when the connection asks for more, so that
// the server reads one part while the next is made, and no batch is in memory twice.
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
