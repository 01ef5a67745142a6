package recent

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Packer turns sessions into compressed texts, and back. Safe for concurrent use.
type Packer struct {
	encoder *zstd.Encoder
	decoder *zstd.Decoder
	buffers sync.Pool // of *packing
}

// packing are the buffers of one call.
type packing struct{ plain, packed []byte }

// packWindow is how far back in a session the same words are found.
const packWindow = 256 << 10

// NewPacker returns a packer. It starts no goroutine and takes little memory before it is used.
func NewPacker() *Packer {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(packWindow),
		zstd.WithAllLitEntropyCompression(true), zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(err) // the options are constants
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true))
	if err != nil {
		panic(err)
	}
	return &Packer{encoder: encoder, decoder: decoder, buffers: sync.Pool{New: func() any { return &packing{} }}}
}

// Pack returns what a view holds of a session as one compressed text. It takes less memory, most of all where the turns
// are few or alike.
func (p *Packer) Pack(h *Held) []byte {
	buf := p.buffers.Get().(*packing)
	defer p.buffers.Put(buf)
	whole := byte(0)
	if h.Whole {
		whole = 1
	}
	b := append(binary.AppendUvarint(buf.plain[:0], h.Applied), whole)
	b = appendText(b, json.RawMessage(AppendHead(nil, h.head)))
	for _, t := range h.turns {
		b = appendText(b, t.whole())
	}
	buf.plain, buf.packed = b, p.encoder.EncodeAll(b, buf.packed[:0])
	return bytes.Clone(buf.packed)
}

// Unpack returns what Pack was given.
func (p *Packer) Unpack(packed []byte) (*Held, error) {
	buf := p.buffers.Get().(*packing)
	defer p.buffers.Put(buf)
	b, err := p.decoder.DecodeAll(packed, buf.plain[:0])
	if err != nil {
		return nil, err
	}
	buf.plain = b
	r := &reader{unread: string(b)}
	h := &Held{Applied: r.uint(), Whole: r.byte() == 1}
	if h.head, err = ReadHead(r.text()); err != nil {
		return nil, err
	}
	for r.unread != "" {
		t := heldTurn{record: r.text()}
		h.turns, h.bytes = append(h.turns, t), h.bytes+t.size()
	}
	if r.bad {
		return nil, errors.New("a packed session is cut")
	}
	return h, nil
}
