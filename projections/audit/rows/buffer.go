// Package rows encodes rows in the forms that PostgreSQL accepts: COPY's binary form and arrays of columns. It replaces
// what a column of texts or JSON can't hold.
package rows

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// Buffer holds encoded fields, one behind the other. Each of its methods appends one field.
type Buffer []byte

// size begins a field of n bytes; the size -1 means NULL.
func (b *Buffer) size(n int) {
	*b = binary.BigEndian.AppendUint32(*b, uint32(n)) //nolint:gosec // no value has 2 GB
}

// Null appends NULL.
func (b *Buffer) Null() { b.size(-1) }

func field[T ~string | ~[]byte](b *Buffer, v T) {
	b.size(len(v))
	*b = append(*b, v...)
}

// orNull appends NULL for the zero value.
func orNull[T comparable](b *Buffer, v T, put func(T)) {
	var zero T
	if v == zero {
		b.Null()
		return
	}
	put(v)
}

func (b *Buffer) int16(v int) {
	*b = binary.BigEndian.AppendUint16(*b, uint16(v)) //nolint:gosec // two's complement is the form on the wire
}

// Smallint appends a partition, or a part of a microsecond.
func (b *Buffer) Smallint(v int) {
	b.size(2)
	b.int16(v)
}

// Int appends an integer.
func (b *Buffer) Int(v int) {
	b.size(4)
	*b = binary.BigEndian.AppendUint32(*b, uint32(v)) //nolint:gosec // two's complement is the form on the wire
}

// Bigint appends a bigint.
func (b *Buffer) Bigint(v uint64) {
	b.size(8)
	*b = binary.BigEndian.AppendUint64(*b, v)
}

// Seq appends a sequence as a bigint, and NULL for none.
func (b *Buffer) Seq(v uint64) { orNull(b, v, b.Bigint) }

// Bool appends a boolean.
func (b *Buffer) Bool(v bool) {
	if v {
		field(b, "\x01")
	} else {
		field(b, "\x00")
	}
}

// epoch2000 is where PostgreSQL counts microseconds from.
var epoch2000 = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// Time appends a timestamptz, and NULL for the zero time.
func (b *Buffer) Time(t time.Time) {
	if t.IsZero() {
		b.Null()
		return
	}
	b.Bigint(uint64(t.UnixMicro() - epoch2000)) //nolint:gosec // two's complement is the form on the wire
}

// Nanos appends what Time leaves out, as a smallint.
func (b *Buffer) Nanos(t time.Time) { b.Smallint(Nanos(t)) }

// Nanos are the nanoseconds of a time that a timestamptz has no room for.
func Nanos(t time.Time) int { return t.Nanosecond() % 1000 }

// Ints appends an array of integers, and NULL for none.
func (b *Buffer) Ints(v []int32) {
	if len(v) == 0 {
		b.Null()
		return
	}
	b.size(20 + 8*len(v))
	for _, n := range []uint32{1, 0, pgtype.Int4OID, uint32(len(v)), 1} { //nolint:gosec // no value has 2 GB
		*b = binary.BigEndian.AppendUint32(*b, n)
	}
	for _, n := range v {
		b.Int(int(n))
	}
}

// literal returns an array in the form of a text, and "" for none.
func literal(v []int32) string {
	if len(v) == 0 {
		return ""
	}
	out := []byte("{")
	for i, n := range v {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, int64(n), 10)
	}
	return string(append(out, '}'))
}

// UUID appends an id, and NULL for the zero one.
func (b *Buffer) UUID(id uuid.UUID) { orNull(b, id, func(id uuid.UUID) { field(b, id[:]) }) }

// Word appends a text that needs no escaping: an id or one of Turnledger's own names.
func (b *Buffer) Word(s string) { field(b, s) }

// Optional appends a word, and NULL for "".
func (b *Buffer) Optional(s string) { orNull(b, s, b.Word) }

// Text appends a client's text.
func (b *Buffer) Text(s string) { field(b, toText(s)) }

// OptionalText appends a client's text, and NULL for "".
func (b *Buffer) OptionalText(s string) { b.Optional(toText(s)) }

// JSON appends messages to a json column, which keeps their bytes, and NULL for none. Messages nest no deeper than
// PostgreSQL reads (events.MaxDepth).
func (b *Buffer) JSON(raw json.RawMessage) {
	switch {
	case len(raw) == 0:
		b.Null()
	case utf8.Valid(raw):
		field(b, raw)
	default:
		field(b, bytes.ToValidUTF8(raw, []byte("\uFFFD")))
	}
}

// JSONB appends a metadata object to a jsonb column, and NULL for none.
func (b *Buffer) JSONB(raw json.RawMessage) {
	stored := toJSONB(raw)
	if stored == nil {
		b.Null()
		return
	}
	b.size(1 + len(stored))
	*b = append(append(*b, 1), stored...) // the version of jsonb's form on the wire
}
