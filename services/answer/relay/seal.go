package relay

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"sync"

	"github.com/nats-io/nats.go"
)

// id is drawn: of a request, a stream, or an attempt.
type id [16]byte

func newID() (out id) {
	_, _ = rand.Read(out[:]) // never fails
	return out
}

// sealer seals what processes tell each other.
type sealer struct {
	key []byte
	// small seals requests and their replies, each under a nonce that is drawn.
	small cipher.AEAD
}

func newSealer(key string) sealer {
	root := derive([]byte(key), "turnledger relay v1")
	return sealer{key: root, small: aead(derive(root, "requests"))}
}

func derive(key []byte, of string) []byte {
	out, err := hkdf.Key(sha256.New, key, nil, of, sha256.Size)
	if err != nil {
		panic(err) // of a length that is too large
	}
	return out
}

func aead(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // of a key of another length
	}
	sealed, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // of a block of another length
	}
	return sealed
}

// bound returns what a message is bound to. The parts hold no zero bytes, but for the last.
func bound(kind, subject, inbox string, more ...byte) []byte {
	return append([]byte(kind+"\x00"+subject+"\x00"+inbox+"\x00"), more...)
}

func (s sealer) seal(plain, to []byte) []byte {
	nonce := make([]byte, s.small.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return s.small.Seal(nonce, nonce, plain, to)
}

func (s sealer) open(raw, to []byte) ([]byte, bool) {
	n := s.small.NonceSize()
	if len(raw) < n {
		return nil, false
	}
	plain, err := s.small.Open(nil, raw[:n], raw[n:], to)
	return plain, err == nil
}

// What a request asks for: whether the answer is made, to watch it, to watch it no more, to stop it, to go on watching.
const (
	opAsk = iota + 1
	opWatch
	opLeave
	opStop
	opStay
)

// request asks the process that makes an answer. One that stops names the attempt that it means.
type request struct {
	op          byte
	id, attempt id
}

func (s sealer) sealRequest(subject, inbox string, q request) []byte {
	plain := append([]byte{q.op}, q.id[:]...)
	return s.seal(append(plain, q.attempt[:]...), bound("request", subject, inbox))
}

func (s sealer) openRequest(subject, inbox string, raw []byte) (q request, sealed bool) {
	plain, sealed := s.open(raw, bound("request", subject, inbox))
	if !sealed || len(plain) != 1+len(q.id)+len(q.attempt) {
		return q, false
	}
	q.op = plain[0]
	copy(q.attempt[:], plain[1+copy(q.id[:], plain[1:]):])
	return q, true
}

func (s sealer) sealReply(subject, inbox string, request, attempt id) []byte {
	return s.seal(attempt[:], bound("reply", subject, inbox, request[:]...))
}

func (s sealer) openReply(subject, inbox string, request id, raw []byte) (attempt id, sealed bool) {
	plain, sealed := s.open(raw, bound("reply", subject, inbox, request[:]...))
	copy(attempt[:], plain)
	return attempt, sealed && len(plain) == len(attempt)
}

// Kinds of frames: a heartbeat, a part of a frame, the last or only part of one, and the end. frameLost is none: a
// frame before was lost.
const (
	frameBeat = iota + 1
	framePart
	frameWhole
	frameEnd
	frameLost
)

// mostPart bounds a message, and mostFrame what a frame is joined of.
const mostPart, mostFrame = 256 << 10, 64 << 20

// series is the frames that answer one request. Each has its number as the nonce of a key of the series' own, so that
// none can be sent again, left out or moved.
type series struct {
	name id
	aead cipher.AEAD
	to   []byte
	next uint64
}

func newSeries(s sealer, subject, inbox string, request, name id) series {
	key := derive(s.key, "series\x00"+string(request[:])+string(name[:]))
	return series{name: name, aead: aead(key), to: bound("frame", subject, inbox)}
}

// numbered is the length of what stands in clear before a frame: the name of its series, and its number.
const numbered = len(id{}) + 8

// nonce returns the nonce of a number.
func (s *series) nonce(number uint64) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, s.aead.NonceSize()-8), number)
}

// seal seals the next frame.
func (s *series) seal(kind byte, data []byte) []byte {
	head := binary.BigEndian.AppendUint64(append(make([]byte, 0, numbered+len(data)+64), s.name[:]...), s.next)
	nonce := s.nonce(s.next)
	s.next++
	return s.aead.Seal(head, nonce, append([]byte{kind}, data...), s.to)
}

// sending is a series that is sent. Safe for concurrent use.
type sending struct {
	nc    *nats.Conn
	inbox string

	mu sync.Mutex
	series
}

func (s *sending) send(kind byte, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nc.Publish(s.inbox, s.seal(kind, data))
}

// frame sends a frame, in parts if it is long.
func (s *sending) frame(data []byte) error {
	for ; len(data) > mostPart; data = data[mostPart:] {
		if err := s.send(framePart, data[:mostPart]); err != nil {
			return err
		}
	}
	return s.send(frameWhole, data)
}

// received is a series that arrives.
type received struct {
	series

	begun bool
	parts []byte
}

// open opens the next message of the series that answers a request. What is not sealed, or came before, is none.
func (s *received) open(a *asking, raw []byte) (kind byte, data []byte, sealed bool) {
	if len(raw) < numbered {
		return 0, nil, false
	}
	name, number := id(raw[:len(id{})]), binary.BigEndian.Uint64(raw[len(id{}):])
	from := s.series
	if !s.begun {
		from = newSeries(a.sealer, a.subject, a.sub.Subject, a.request.id, name)
	}
	if name != from.name || number < from.next {
		return 0, nil, false
	}
	plain, err := from.aead.Open(nil, from.nonce(number), raw[numbered:], from.to)
	if err != nil || len(plain) == 0 {
		return 0, nil, false
	}
	s.begun, s.series = true, from
	if number > s.next || len(s.parts)+len(plain) > mostFrame {
		return frameLost, nil, true
	}
	s.next++
	switch kind, plain = plain[0], plain[1:]; kind {
	case framePart:
		s.parts = append(s.parts, plain...)
	case frameWhole:
		plain, s.parts = append(s.parts, plain...), nil
	}
	return kind, plain, true
}
