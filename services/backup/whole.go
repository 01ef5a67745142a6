package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"time"
)

// CheckedBackup is a backup whose every byte was checked. The caller closes it.
type CheckedBackup struct {
	Manifest
	raw   []byte
	files []*os.File
}

// Check reads a whole backup. It fails with ErrDamaged and the file's name if a file differs from the manifest.
func Check(ctx context.Context, from Store, progress Progress) (w *CheckedBackup, err error) {
	w = &CheckedBackup{}
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	f, err := from.Open(ctx, manifestName)
	if errors.Is(err, fs.ErrNotExist) {
		return w, fmt.Errorf("there is no %s: %w", manifestName, ErrDamaged)
	}
	if err != nil {
		return w, err
	}
	w.raw, err = io.ReadAll(io.LimitReader(f, maxManifest))
	if err = errors.Join(err, f.Close()); err != nil {
		return w, err
	}
	if err := w.read(w.raw); err != nil {
		return w, err
	}
	for _, of := range w.Files {
		f, err := from.Open(ctx, of.Name)
		if errors.Is(err, fs.ErrNotExist) {
			return w, damaged(of.Name, "is missing")
		}
		if err != nil {
			return w, err
		}
		w.files = append(w.files, f)
		told := &counting{progress: func(n int64) { progress(of.Name, n, of.Bytes) }}
		if _, err := io.Copy(told, &checkedFile{from: contextReader{ctx, f}, file: of,
			sum: summing{sum: sha256.New()}}); err != nil {
			return w, err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return w, err
		}
	}
	return w, nil
}

// maxManifest bounds a manifest in bytes: more than 256 partitions and 10,000 dead letters need.
const maxManifest = 32 << 20

func (m *Manifest) read(raw []byte) error {
	if err := json.Unmarshal(raw, m); err != nil {
		return fmt.Errorf("%s can't be read (%w): %w", manifestName, err, ErrDamaged)
	}
	return m.check()
}

// Close closes the files.
func (w *CheckedBackup) Close() {
	for _, f := range w.files {
		_ = f.Close()
	}
}

// Size estimates how many bytes Pack writes.
func (w *CheckedBackup) Size() int64 { return w.Bytes() + int64(len(w.raw)) }

// Pack writes the backup for Unpack, as a tar: the manifest, what was erased since it was taken, and the files.
func (w *CheckedBackup) Pack(to io.Writer, erasures []Erasure) error {
	out := tar.NewWriter(to)
	var erasuresJSON bytes.Buffer
	for _, e := range erasures {
		if err := json.NewEncoder(&erasuresJSON).Encode(e); err != nil {
			return err
		}
	}
	entry := func(name string, size int64, from io.Reader) error {
		if err := out.WriteHeader(&tar.Header{Name: name, Size: size, Mode: 0o600, Format: tar.FormatPAX,
			ModTime: time.Unix(0, 0)}); err != nil {
			return err
		}
		_, err := io.Copy(out, from)
		return err
	}
	if err := entry(manifestName, int64(len(w.raw)), bytes.NewReader(w.raw)); err != nil {
		return err
	}
	if err := entry(erasuresName, int64(erasuresJSON.Len()), &erasuresJSON); err != nil {
		return err
	}
	for i, f := range w.Files {
		if err := entry(f.Name, f.Bytes, w.files[i]); err != nil {
			return fmt.Errorf("send %s: %w", f.Name, err)
		}
	}
	return out.Close()
}

// Packed is a backup that is being read from Pack's output.
type Packed struct {
	Manifest
	Erasures []Erasure
	in       *tar.Reader
	next     int
}

// Unpack begins to read what Pack wrote.
func Unpack(from io.Reader) (*Packed, error) {
	p := &Packed{in: tar.NewReader(from)}
	raw, err := p.small(manifestName, maxManifest)
	if err != nil {
		return nil, err
	}
	if err := p.read(raw); err != nil {
		return nil, err
	}
	erasuresJSON, err := p.small(erasuresName, maxErasures)
	if err != nil {
		return nil, err
	}
	p.Erasures, err = ReadErasures(bytes.NewReader(erasuresJSON))
	return p, err
}

func (p *Packed) small(name string, most int64) ([]byte, error) {
	h, err := p.in.Next()
	if err != nil || h.Name != name || h.Size > most {
		return nil, damaged(name, "is missing or too large")
	}
	raw, err := io.ReadAll(p.in)
	if err != nil {
		return nil, damaged(name, "is cut off")
	}
	return raw, nil
}

// Next returns the copy of the next partition. Reading it to its end fails if it differs from the manifest.
func (p *Packed) Next(partition int) (io.Reader, error) {
	if partition != p.next || partition >= len(p.Files) {
		return nil, errors.New("copies come in the order of partitions, not " + strconv.Itoa(partition))
	}
	f := p.Files[p.next]
	p.next++
	h, err := p.in.Next()
	if err != nil || h.Name != f.Name || h.Size != f.Bytes {
		return nil, damaged(f.Name, "is missing or has another size")
	}
	return &checkedFile{from: p.in, file: f, sum: summing{sum: sha256.New()}}, nil
}

// checkedFile reads a file. At the file's end it fails with ErrDamaged if the bytes don't match the manifest.
type checkedFile struct {
	from io.Reader
	file File
	sum  summing
}

func (h *checkedFile) Read(b []byte) (int, error) {
	n, err := h.from.Read(b)
	_, _ = h.sum.Write(b[:n]) // a hash takes everything
	switch {
	case err == nil, !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return n, err
	case errors.Is(err, io.ErrUnexpectedEOF), h.sum.n != h.file.Bytes:
		return n, damaged(h.file.Name, fmt.Sprintf("has %d bytes, not %d", h.sum.n, h.file.Bytes))
	case h.sum.hex() != h.file.SHA256:
		return n, damaged(h.file.Name, "has another SHA-256 than the manifest says")
	}
	return n, io.EOF
}

type contextReader struct {
	ctx context.Context //nolint:containedctx // lives for one reading
	r   io.Reader
}

func (c contextReader) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}
