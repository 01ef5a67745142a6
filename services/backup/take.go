package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/klauspost/compress/s2"

	"github.com/turnledger/turnledger/projections"
)

// Store keeps files by name.
type Store interface {
	// Put stores all bytes of from or nothing, and replaces a file of the same name.
	Put(ctx context.Context, name string, from io.Reader) error
	// Open opens a file, which the caller closes. It fails with fs.ErrNotExist if there is no such file.
	Open(ctx context.Context, name string) (*os.File, error)
}

// Source is a log that can be copied.
type Source interface {
	Partitions(ctx context.Context) (int, error)
	// Snapshot begins a copy.
	Snapshot(ctx context.Context, partition int) (Copy, error)
	DeadLetters(ctx context.Context) ([]projections.DeadLetter, error)
}

// Copy is the copy of a partition that was begun. File holds its sequences and sizes; RawBytes is an estimate. ItemKey
// is the key of the ids of items, as in a Manifest.
type Copy struct {
	File    File
	ItemKey string
	Body    io.ReadCloser
}

// Progress is called with the bytes of a copy that have arrived, and with an estimate of all its bytes, both before
// packing.
type Progress func(name string, done, of int64)

// tries bounds the attempts to copy a partition. A broken copy is started again.
const tries = 3

// Take copies the log, one partition after the other, while the log is in use. It returns the manifest, which it writes
// last. It fails with ErrExists if there is a backup already.
func Take(ctx context.Context, from Source, to Store, version string, now time.Time,
	progress Progress) (*Manifest, error) {
	if f, err := to.Open(ctx, manifestName); err == nil {
		return nil, errors.Join(ErrExists, f.Close())
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	n, err := from.Partitions(ctx)
	if err != nil {
		return nil, err
	}
	m := &Manifest{Format: format, Version: version, TakenAt: now.UTC(), Partitions: n}
	for k := range n {
		var f File
		for try := 1; ; try++ {
			if f, m.ItemKey, err = copyOne(ctx, from, to, k, progress); err == nil || try == tries || ctx.Err() != nil {
				break
			}
		}
		if err != nil {
			return nil, fmt.Errorf("copy partition %d: %w", k, err)
		}
		m.Files = append(m.Files, f)
	}
	if m.DeadLetters, err = from.DeadLetters(ctx); err != nil {
		return nil, fmt.Errorf("copy the dead letters: %w", err)
	}
	raw, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	return m, to.Put(ctx, manifestName, bytes.NewReader(append(raw, '\n')))
}

// copyOne copies a partition. It also unpacks the bytes as they come, so that a missing or broken part is found before
// the copy is needed.
func copyOne(
	ctx context.Context, from Source, to Store, k int, progress Progress,
) (f File, itemKey string, err error) {
	begun, err := from.Snapshot(ctx, k)
	if err != nil {
		return f, "", err
	}
	defer func() { _ = begun.Body.Close() }()
	f = begun.File
	f.Name, f.Partition = fileName(k), k
	about := f.RawBytes
	raw := &counting{progress: func(n int64) { progress(f.Name, n, max(about, n)) }}
	x := unpacking(begun.Body, raw)
	err = to.Put(ctx, f.Name, x)
	x.stop(err)
	f.Bytes, f.SHA256, f.RawBytes = x.sum.n, x.sum.hex(), raw.n
	return f, begun.ItemKey, err
}

// unpacked is a packed stream that is also unpacked while it is read. It ends with io.EOF only if unpacking reached the
// end too.
type unpacked struct {
	from     io.Reader
	sum      summing
	unpacker *io.PipeWriter
	ended    chan struct{}
	bad      error // why unpacking failed; read it only after ended
}

func unpacking(from io.Reader, raw io.Writer) *unpacked {
	read, write := io.Pipe()
	x := &unpacked{from: from, sum: summing{sum: sha256.New()}, unpacker: write, ended: make(chan struct{})}
	go func() {
		defer close(x.ended)
		_, x.bad = io.Copy(raw, s2.NewReader(read))
		_ = read.CloseWithError(x.bad)
	}()
	return x
}

func (x *unpacked) Read(b []byte) (int, error) {
	n, err := x.from.Read(b)
	_, _ = x.sum.Write(b[:n]) // a hash takes everything
	if _, bad := x.unpacker.Write(b[:n]); bad != nil {
		return n, fmt.Errorf("the copy can't be unpacked: %w", bad)
	}
	if errors.Is(err, io.EOF) {
		_ = x.unpacker.Close()
		if <-x.ended; x.bad != nil {
			return n, fmt.Errorf("the copy can't be unpacked: %w", x.bad)
		}
	}
	return n, err
}

// stop ends the unpacking, wherever it is.
func (x *unpacked) stop(err error) {
	_ = x.unpacker.CloseWithError(err)
	<-x.ended
}

// summing counts the bytes that are written, and computes their checksum.
type summing struct {
	sum hash.Hash
	n   int64
}

func (s *summing) Write(b []byte) (int, error) {
	s.n += int64(len(b))
	return s.sum.Write(b)
}

func (s *summing) hex() string { return hex.EncodeToString(s.sum.Sum(nil)) }

// counting counts the bytes that are written, and calls progress with their number.
type counting struct {
	n        int64
	progress func(int64)
}

func (c *counting) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	c.progress(c.n)
	return len(b), nil
}
