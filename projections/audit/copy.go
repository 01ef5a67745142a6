package audit

import (
	"context"
	"encoding/binary"
	"io"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// copyRows streams rows into a table.
func copyRows(ctx context.Context, tx pgx.Tx, sql string, count int, encode func(r *rowBuffer, i int)) error {
	if count == 0 {
		return nil
	}
	stream := &rows{count: count, encode: encode, buf: buffers.Get().(*rowBuffer)}
	stream.buf.b = append(stream.buf.b[:0], "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	if _, err := tx.Conn().PgConn().CopyFrom(ctx, stream, sql); err != nil {
		return err // CopyFrom may still be reading the stream after the connection broke
	}
	buffers.Put(stream.buf)
	return nil
}

var buffers = sync.Pool{New: func() any { return &rowBuffer{b: make([]byte, 0, 2*chunk)} }}

// chunk is what a COPY message of pgx holds.
const chunk = 64 << 10

// rows is a stream of rows in PostgreSQL's binary COPY form. Each row is encoded when the connection asks for more, so that
// the server reads one part while the next is made, and no batch stands twice in memory.
type rows struct {
	count  int
	encode func(r *rowBuffer, i int)

	buf  *rowBuffer
	sent int
	next int
}

// Read implements io.Reader.
func (r *rows) Read(p []byte) (int, error) {
	if r.sent == len(r.buf.b) {
		if r.next > r.count {
			return 0, io.EOF
		}
		r.buf.b, r.sent = r.buf.b[:0], 0
	}
	for len(r.buf.b)-r.sent < chunk && r.next <= r.count {
		if r.next < r.count {
			r.encode(r.buf, r.next)
		} else {
			r.buf.int16(-1) // the end of the stream
		}
		r.next++
	}
	n := copy(p, r.buf.b[r.sent:])
	r.sent += n
	return n, nil
}

// maxArrays bounds the bytes that one statement is given: PostgreSQL takes no more than 1 GB.
const maxArrays = 8 << 20

// withRows runs a statement whose parameters are the columns of rows, as arrays for unnest: once, or more often if they are
// large. Arrays instead of a staging table, since emptying a temporary table costs 0.5 to 1 ms at every commit.
func withRows(ctx context.Context, tx pgx.Tx, sql string, count int, encode func(r *rowBuffer, i int)) error {
	if count == 0 {
		return nil
	}
	stmt, err := tx.Conn().Prepare(ctx, sql, sql)
	if err != nil {
		return err
	}
	for from := 0; from < count; {
		r := newArrays(tx.Conn().TypeMap(), stmt.ParamOIDs)
		n := 0
		for from+n < count && (n == 0 || r.bytes() < maxArrays) {
			encode(&r.rowBuffer, from+n)
			n++
		}
		if _, err := tx.Conn().PgConn().ExecPrepared(ctx, stmt.Name, r.close(n), []int16{1}, nil).Close(); err != nil {
			return err
		}
		from += n
	}
	return nil
}

// arrays are the columns of rows, each in the binary form of a one-dimensional array.
type arrays struct{ rowBuffer }

// arrayHead is dimensions, whether there are nulls, the type of the elements, their number, and the first one's index.
const arrayHead = 20

func newArrays(types *pgtype.Map, oids []uint32) *arrays {
	r := &arrays{rowBuffer{columns: make([][]byte, len(oids)), at: -1}}
	for i, oid := range oids {
		head := make([]byte, arrayHead, 1024)
		binary.BigEndian.PutUint32(head, 1)
		binary.BigEndian.PutUint32(head[4:], 1)
		if t, ok := types.TypeForOID(oid); ok {
			if array, ok := t.Codec.(*pgtype.ArrayCodec); ok {
				binary.BigEndian.PutUint32(head[8:], array.ElementType.OID)
			}
		}
		binary.BigEndian.PutUint32(head[16:], 1)
		r.columns[i] = head
	}
	return r
}

func (r *arrays) bytes() int {
	n := len(r.b)
	for _, c := range r.columns {
		n += len(c)
	}
	return n
}

func (r *arrays) close(count int) [][]byte {
	r.leave()
	for _, c := range r.columns {
		binary.BigEndian.PutUint32(c[12:], uint32(count)) //nolint:gosec // rows of a batch
	}
	return r.columns
}
