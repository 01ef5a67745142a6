package audit

import (
	"encoding/binary"
	"time"

	"github.com/google/uuid"
)

// rowBuffer encodes rows in PostgreSQL's binary form, field by field in the order of their columns: one row behind the other,
// as COPY takes them, or each column by itself, as arrays are made of.
type rowBuffer struct {
	b []byte
	// columns, where there are any, are the elements of each column; b is that of at.
	columns [][]byte
	at      int
}

func (r *rowBuffer) begin(columns int) {
	if r.columns == nil {
		r.int16(int16(columns)) //nolint:gosec // a few dozen
		return
	}
	r.leave()
	r.at = -1
}

// leave puts the column that is being written back.
func (r *rowBuffer) leave() {
	if r.at >= 0 {
		r.columns[r.at] = r.b
	}
}

// null is also a whole field, as every call to size begins one.
func (r *rowBuffer) null() { r.size(-1) }

func (r *rowBuffer) size(n int) {
	if r.columns != nil {
		r.leave()
		r.at++
		r.b = r.columns[r.at]
	}
	r.b = binary.BigEndian.AppendUint32(r.b, uint32(n)) //nolint:gosec // -1 is NULL, and no value has 2 GB
}

func (r *rowBuffer) int16(v int16) {
	r.b = binary.BigEndian.AppendUint16(r.b, uint16(v)) //nolint:gosec // two's complement is the form on the wire
}

func (r *rowBuffer) smallint(v int) {
	r.size(2)
	r.int16(int16(v)) //nolint:gosec // partitions and parts of a microsecond
}

func (r *rowBuffer) integer(v int) {
	r.size(4)
	r.b = binary.BigEndian.AppendUint32(r.b, uint32(v)) //nolint:gosec // two's complement is the form on the wire
}

func (r *rowBuffer) bigint(v uint64) {
	r.size(8)
	r.b = binary.BigEndian.AppendUint64(r.b, v)
}

// seq is a sequence, and NULL for none.
func (r *rowBuffer) seq(v uint64) {
	if v == 0 {
		r.null()
		return
	}
	r.bigint(v)
}

func (r *rowBuffer) boolean(v bool) {
	r.size(1)
	if v {
		r.b = append(r.b, 1)
	} else {
		r.b = append(r.b, 0)
	}
}

// time is a timestamptz, and NULL for the zero time.
func (r *rowBuffer) time(t time.Time) {
	if t.IsZero() {
		r.null()
		return
	}
	r.bigint(uint64(t.UnixMicro() - epoch2000)) //nolint:gosec // two's complement is the form on the wire
}

// epoch2000 is where PostgreSQL counts microseconds from.
var epoch2000 = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// nanos is what time leaves out.
func (r *rowBuffer) nanos(t time.Time) { r.smallint(nanos(t)) }

func nanos(t time.Time) int { return t.Nanosecond() % 1000 }

// uuid is NULL for the zero one.
func (r *rowBuffer) uuid(id uuid.UUID) {
	if id == uuid.Nil {
		r.null()
		return
	}
	r.size(len(id))
	r.b = append(r.b, id[:]...)
}

// word is a text that needs no care: an id or a name of ours.
func (r *rowBuffer) word(s string) {
	r.size(len(s))
	r.b = append(r.b, s...)
}

// optional is a word, and NULL for "".
func (r *rowBuffer) optional(s string) {
	if s == "" {
		r.null()
		return
	}
	r.word(s)
}

func (r *rowBuffer) text(s string) { r.word(toText(s)) }

func (r *rowBuffer) optionalText(s string) {
	if s == "" {
		r.null()
		return
	}
	r.text(s)
}

func (r *rowBuffer) json(stored []byte) {
	if stored == nil {
		r.null()
		return
	}
	r.size(len(stored))
	r.b = append(r.b, stored...)
}

func (r *rowBuffer) jsonb(stored []byte) {
	if stored == nil {
		r.null()
		return
	}
	r.size(1 + len(stored))
	r.b = append(append(r.b, 1), stored...) // the version of jsonb's form on the wire
}
