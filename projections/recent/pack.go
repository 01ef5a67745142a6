package recent

import (
	"encoding/binary"
	"encoding/json"
	"errors"

	"github.com/klauspost/compress/zstd"

	"github.com/turnledger/turnledger/events/session"
)

// Packer turns sessions into compressed texts, and back. Safe for concurrent use.
type Packer struct {
	encoder *zstd.Encoder
	decoder *zstd.Decoder
}

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
	return &Packer{encoder, decoder}
}

// Pack returns what a view holds of a session as one compressed text. It takes less memory than the state, most of all
// where the turns are few or alike.
func (p *Packer) Pack(s *session.State) string {
	whole := byte(0)
	if s.Whole {
		whole = 1
	}
	b := append(binary.AppendUvarint(nil, s.Applied), whole)
	b = appendText(b, json.RawMessage(AppendHead(nil, s.Head())))
	for _, t := range s.Turns {
		b = appendText(b, json.RawMessage(Record(t)))
	}
	return string(p.encoder.EncodeAll(b, make([]byte, 0, len(b))))
}

// Unpack returns the state that Pack was given, as far as a view shows it: like a state from Redis, it does not tell
// the repeat of an event from another event.
func (p *Packer) Unpack(sessionID string, rules session.Rules, packed string) (*session.State, error) {
	b, err := p.decoder.DecodeAll([]byte(packed), nil)
	if err != nil {
		return nil, err
	}
	r := &reader{unread: string(b)}
	s := session.New(sessionID, rules)
	s.Applied, s.Whole = r.uint(), r.byte() == 1
	h, err := ReadHead(r.text())
	if err != nil {
		return nil, err
	}
	s.Adopt(h)
	for r.unread != "" {
		t, err := ReadTurn(r.text())
		if err != nil {
			return nil, err
		}
		s.Turns = append(s.Turns, t)
	}
	if r.bad {
		return nil, errors.New("a packed session is cut")
	}
	return s, nil
}
