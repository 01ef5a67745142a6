package wire

import (
	"cmp"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// widest bounds the window of a zstd body: the memory that its decoder takes, whatever the body's length. RFC 8878
// (3.1.1.1.2) asks decoders to take as much.
const widest = 8 << 20

// codings open bodies by the names of their Content-Encoding.
var codings = map[string]func(io.Reader) (io.ReadCloser, error){"gzip": openGzip, "x-gzip": openGzip, "zstd": openZstd}

// accepted names the codings for the header Accept-Encoding of a refusal.
const accepted = "gzip, zstd"

func openGzip(r io.Reader) (io.ReadCloser, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	return z, nil
}

func openZstd(r io.Reader) (io.ReadCloser, error) {
	d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(widest))
	if err != nil {
		return nil, err
	}
	return d.IOReadCloser(), nil
}

// unpack makes the body of a request readable without its Content-Encoding. Its length is then not known.
func unpack(r *http.Request) error {
	names := strings.Join(r.Header["Content-Encoding"], ",")
	if names == "" || r.Body == nil || r.ContentLength == 0 || strings.EqualFold(names, "identity") {
		return nil
	}
	open, ok := codings[strings.ToLower(names)]
	if !ok {
		return ErrEncoding
	}
	r.Body, r.ContentLength = &unpacked{packed: source{r.Body, nil}, open: open}, -1
	return nil
}

// unpacked is a body without its coding. Its decoder is opened by the first read, and closed by the last.
type unpacked struct {
	packed source
	open   func(io.Reader) (io.ReadCloser, error)
	plain  io.ReadCloser
	err    error
}

// Read implements io.Reader. It fails with ErrPacked where the body has not the form of its coding.
func (u *unpacked) Read(p []byte) (n int, err error) {
	if u.plain == nil && u.err == nil {
		u.plain, u.err = u.open(&u.packed)
	}
	if u.err == nil {
		n, u.err = u.plain.Read(p)
	}
	switch {
	case u.err == nil, u.err == io.EOF: //nolint:errorlint // io.Reader returns it as it is
	case u.packed.err != nil:
		u.err = u.packed.err // the client left, or was too slow
	default:
		u.err = ErrPacked
	}
	if u.err != nil {
		u.free()
	}
	return n, u.err
}

// free gives the decoder's memory back.
func (u *unpacked) free() {
	if u.plain != nil {
		_ = u.plain.Close() // it has nothing to write
		u.plain = nil
	}
}

// Close implements io.Closer.
func (u *unpacked) Close() error {
	u.free()
	u.err = cmp.Or(u.err, error(http.ErrBodyReadAfterClose))
	return u.packed.Close()
}

// source is a body that keeps the error that reading it ended with, io.EOF apart.
type source struct {
	io.ReadCloser

	err error
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}
