package importer

import (
	"archive/zip"
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// format is what reads the files of one product.
type format struct {
	// holds reports whether a file of a zip or a folder holds conversations, by its name.
	holds func(name string) bool
	// beside are the names of files that come with conversations and hold none.
	beside []string
	// head reads what a record of a file is about; of no file, one that does not name its conversation has no id.
	// Records of one id, in a format where they are parts, are one conversation.
	head  func(raw []byte, file string) (head, error)
	parts bool
	// read makes a tree of the records of a conversation.
	read func(records [][]byte, note func(names ...string)) (*tree, error)
}

// head is what a record is about: its conversation, and when that was active last.
type head struct {
	id   string
	last time.Time
}

// exports are the files of an export. All were read once, and their conversations put in order.
type exports struct {
	*importer
	format

	files []openFile
	open  []*os.File
	units []unit
	// bytes are those of all conversations.
	bytes int64
	// others are the files that hold no conversations.
	others map[string]bool
	// digests are those of the files that were read, of a format with parts.
	digests map[[sha256.Size]byte]bool
}

// openFile is a file that any part can be read of.
type openFile struct {
	name string
	io.ReaderAt
	size int64
	// copied: it is no file that the user named, so that its bytes count with those of the file that it is of.
	copied bool
	// again: a file that says the same was read before.
	again bool
}

// unit is what a file has of a conversation.
type unit struct {
	id    string
	last  time.Time
	parts []part
	err   error
}

// part is a record of a file: its place among them and in the file.
type part struct {
	name     string
	file     int
	index    int
	off, len int64
}

func (u unit) where() string { return fmt.Sprintf("%s[%d]", u.parts[0].name, u.parts[0].index) }

func (u unit) size() (n int64) {
	for _, p := range u.parts {
		n += p.len
	}
	return n
}

// openExports reads all files once, and puts their conversations in the order of their last activity; those without a
// time come first, as they stand.
func (im *importer) openExports(
	ctx context.Context, files []string, f format,
) (x *exports, err error) {
	x = &exports{importer: im, format: f, others: map[string]bool{}, digests: map[[sha256.Size]byte]bool{}}
	defer func() {
		if err != nil {
			x.close()
		}
	}()
	for _, name := range files {
		if err := x.add(ctx, name); err != nil {
			return x, fmt.Errorf("read %s: %w", name, err)
		}
	}
	byID := map[string]int{}
	for i := range x.files {
		err := x.recognize(&x.files[i])
		if err == nil {
			err = x.index(ctx, i, byID)
		}
		if err != nil {
			return x, fmt.Errorf("read %s: %w", x.files[i].name, err)
		}
	}
	for name := range x.others {
		im.drop([]string{name})
	}
	slices.SortStableFunc(x.units, func(a, b unit) int { return a.last.Compare(b.last) })
	return x, nil
}

func (x *exports) close() {
	for _, f := range x.open {
		_ = f.Close()
	}
}

// add opens a file that the user named: one with conversations, a zip of such, or a folder.
func (x *exports) add(ctx context.Context, name string) error {
	if name == "-" {
		return x.addStream(ctx, name, os.Stdin)
	}
	f, err := os.Open(name) //nolint:gosec // the file that the user named
	if err != nil {
		return err
	}
	x.open = append(x.open, f)
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return x.addAll(ctx, name, os.DirFS(name))
	case slices.Contains(x.beside, filepath.Base(name)):
		x.others[filepath.Base(name)] = true
		x.Passed(info.Size())
		return nil
	case !info.Mode().IsRegular():
		return x.addStream(ctx, name, f)
	}
	return x.take(ctx, openFile{name: name, ReaderAt: f, size: info.Size()})
}

// addStream copies a stream to a file, so that any part of it can be read.
func (x *exports) addStream(ctx context.Context, name string, r io.Reader) error {
	f, err := x.temporary()
	if err != nil {
		return err
	}
	n, err := copyTo(ctx, f, r)
	if err != nil {
		return err
	}
	return x.take(ctx, openFile{name: name, ReaderAt: f, size: n, copied: true})
}

// take takes a file, or those in it, if it is a zip.
func (x *exports) take(ctx context.Context, f openFile) error {
	magic := make([]byte, 4)
	_, _ = f.ReadAt(magic, 0) // a file that is shorter is no zip
	if string(magic) != "PK\x03\x04" {
		x.files = append(x.files, f)
		return nil
	}
	z, err := zip.NewReader(f, f.size)
	if err != nil {
		return err
	}
	if !f.copied {
		x.Passed(f.size)
	}
	return x.addAll(ctx, f.name, z)
}

// recognizeZip returns what wrote the conversations in a zip; "" if that is not known, as of a stream.
func recognizeZip(r io.Reader) (from Source) {
	f, is := r.(*os.File)
	if !is {
		return ""
	}
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	z, err := zip.NewReader(f, info.Size())
	if err != nil {
		return ""
	}
	for _, packed := range z.File {
		if from != "" || !anyJSON(packed.Name) {
			continue
		}
		if in, err := packed.Open(); err == nil {
			_ = eachValue(io.LimitReader(in, mostOf(packed.FileInfo())), func(v value) error { // the first that says it
				if from = Recognize(v.text); from != "" {
					return io.EOF
				}
				return nil
			})
			_ = in.Close()
		}
	}
	return from
}

// addAll takes the files with conversations of a zip or a folder, and names the others, of which those that are no
// JSON by what their names end with. What is in a zip is copied to one file.
func (x *exports) addAll(ctx context.Context, name string, in fs.FS) error {
	before := len(x.files)
	var copies *os.File
	end := int64(0)
	err := fs.WalkDir(in, ".", func(at string, d fs.DirEntry, err error) error {
		base := path.Base(at)
		switch {
		case err != nil || d.IsDir():
			return err
		case slices.Contains(x.beside, base) || !x.holds(base):
			if end := path.Ext(base); end != ".json" && end != ".html" {
				base = "*" + end
			}
			x.others[base] = true
			return nil
		}
		f, err := in.Open(at)
		if err != nil {
			return err
		}
		info, err := f.Stat()
		if file, is := f.(*os.File); is && err == nil && info.Mode().IsRegular() {
			x.open = append(x.open, file)
			x.files = append(x.files, openFile{name: name + "/" + at, ReaderAt: file, size: info.Size(), copied: true})
			return nil
		}
		defer func() { _ = f.Close() }()
		if err == nil && copies == nil {
			copies, err = x.temporary()
		}
		if err != nil {
			return err
		}
		most := mostOf(info)
		n, err := copyTo(ctx, copies, io.LimitReader(f, most))
		if err == nil && n == most {
			err = fmt.Errorf("it holds more than %d bytes, which no export does", most-1)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		x.files = append(x.files, openFile{
			name: name + "/" + at, ReaderAt: io.NewSectionReader(copies, end, n), size: n, copied: true,
		})
		end += n
		return nil
	})
	if err == nil && len(x.files) == before {
		err = errors.New("it holds no file with conversations")
	}
	return err
}

// Bounds of a file in a zip, in bytes and in times of its packed size, of which the larger counts.
const (
	mostOfEntry = 64 << 20
	mostPacked  = 200
)

// mostOf returns how much is read of a file in a zip, or of a stream in a folder: one byte more than it may hold.
func mostOf(info fs.FileInfo) int64 {
	h, is := info.Sys().(*zip.FileHeader)
	if !is {
		return math.MaxInt64
	}
	return 1 + max(mostOfEntry, mostPacked*int64(min(h.CompressedSize64, math.MaxInt32)))
}

// temporary makes a file that goes with this process.
func (x *exports) temporary() (*os.File, error) {
	f, err := os.CreateTemp("", "turnledger-import-*")
	if err != nil {
		return nil, err
	}
	x.open = append(x.open, f)
	_ = os.Remove(f.Name()) // it stays until it is closed
	return f, nil
}

// copyTo copies a stream until the context ends.
func copyTo(ctx context.Context, to io.Writer, r io.Reader) (int64, error) {
	return io.Copy(to, readerFunc(func(p []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return r.Read(p)
	}))
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// recognize notes whether a file says what one before it says, where its records would be parts of a conversation
// twice: a file that is named again, or stands in a zip and beside it.
func (x *exports) recognize(f *openFile) error {
	if !x.parts {
		return nil
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, f.size)); err != nil {
		return err
	}
	digest := [sha256.Size]byte(sum.Sum(nil))
	f.again, x.digests[digest] = x.digests[digest], true
	return nil
}

// index notes the conversations of a file.
func (x *exports) index(ctx context.Context, i int, byID map[string]int) error {
	f := x.files[i]
	known := func(raw []byte) bool {
		h, err := x.head(raw, "") // else a message of what is broken would be a conversation by the file's name
		return err == nil && h.id != ""
	}
	passed := int64(0)
	return eachRecord(f, f.size, known, func(n int, off int64, raw []byte, err error) error {
		p := part{name: filepath.Base(f.name), file: i, index: n, off: off, len: int64(len(raw))}
		if !f.copied {
			x.Passed(off + p.len - passed)
			passed = off + p.len
		}
		x.bytes += p.len
		u := unit{parts: []part{p}, err: err}
		var h head
		if err == nil {
			h, u.err = x.head(raw, f.name)
		}
		if u.err == nil && !utf8.Valid(raw) {
			u.err = errors.New("not UTF-8: convert the file")
		}
		if u.err == nil {
			u.id, u.last = h.id, h.last
			u.err = checkID(h.id)
		}
		before, again := byID[u.id]
		if u.err == nil && again && x.parts {
			was := &x.units[before]
			if f.again && was.parts[0].file != i {
				x.bytes -= p.len
				return ctx.Err()
			}
			was.parts = append(was.parts, p)
			if u.last.After(was.last) {
				was.last = u.last
			}
			return ctx.Err()
		}
		if u.err != nil {
			u.id = ""
		} else {
			byID[u.id] = len(x.units)
		}
		x.units = append(x.units, u)
		return ctx.Err()
	})
}

// read reads a conversation.
func (x *exports) read(u unit) (*tree, error) {
	if u.err != nil {
		return nil, u.err
	}
	records := make([][]byte, len(u.parts))
	for i, p := range u.parts {
		records[i] = make([]byte, p.len)
		if _, err := x.files[p.file].ReadAt(records[i], p.off); err != nil {
			return nil, err
		}
	}
	t, err := x.format.read(records, func(names ...string) { x.drop(names) })
	if err != nil {
		return nil, err
	}
	t.id = u.id
	if t.current == "" && len(t.nodes) > 0 {
		t.current = t.nodes[len(t.nodes)-1].id
	}
	return t, nil
}

// wrapper matches the beginning of a file whose conversations are a member of an object.
var wrapper = regexp.MustCompile(`^(?:\xef\xbb\xbf)?\s*\{\s*"(?:conversations|chats)"\s*:\s*\[`)

// eachRecord calls use for the objects of a file: the elements of an array, or one behind the other. Behind what is no
// JSON it goes on with the next record that is known; err is then what is wrong with the one that it passes over.
func eachRecord(
	f io.ReaderAt, size int64, known func([]byte) bool, use func(n int, off int64, raw []byte, err error) error,
) error {
	start := make([]byte, min(size, 1<<10))
	if _, err := f.ReadAt(start, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	pos := int64(len(wrapper.Find(start)))
	wrapped := pos > 0
	if !wrapped && bytes.HasPrefix(start, []byte("\xef\xbb\xbf")) {
		pos = 3
	}
	s := scanner{f: f, size: size, dec: jsontext.NewDecoder(bytes.NewReader(nil))}
	for n := 0; ; n++ {
		at, c, err := s.begin(pos)
		if errors.Is(err, io.EOF) || wrapped && c == ']' {
			return nil
		}
		if err != nil {
			return err
		}
		raw, err := s.value(at)
		if err == nil {
			if err := use(n, at, raw, nil); err != nil {
				return err
			}
			pos = at + int64(len(raw))
			continue
		}
		if _, broken := errors.AsType[*jsontext.SyntacticError](err); !broken && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		next, err := s.resume(at+1, known)
		if err != nil {
			return err
		}
		if err := use(n, at, nil, errBroken); err != nil {
			return err
		}
		pos = next
	}
}

var errBroken = errors.New("not JSON, up to the next conversation")

// scanner finds values in a file.
type scanner struct {
	f    io.ReaderAt
	size int64
	dec  *jsontext.Decoder
}

func (s *scanner) from(at int64) *io.SectionReader { return io.NewSectionReader(s.f, at, s.size-at) }

// begin returns where the next value begins behind white space, commas and the brackets of lists, and its first byte;
// for the end of a list that byte, if it stands behind a value.
func (s *scanner) begin(at int64) (int64, byte, error) {
	r := bufio.NewReaderSize(s.from(at), 256)
	end := byte(0)
	for ; ; at++ {
		c, err := r.ReadByte()
		if err != nil {
			return at, end, err
		}
		switch c {
		case ']':
			end = c
			if at == s.size-1 {
				return at, c, io.EOF
			}
		case ' ', '\t', '\r', '\n', ',', '[':
		default:
			return at, cmp.Or(end, c), nil
		}
	}
}

// value reads the value at an offset.
func (s *scanner) value(at int64) (jsontext.Value, error) {
	s.dec.Reset(s.from(at), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	v, err := s.dec.ReadValue()
	return v, err
}

// resume returns where the next known record begins: an object behind a comma, a bracket, or at the beginning of a
// line. At the end of the file there is none.
func (s *scanner) resume(at int64, known func([]byte) bool) (int64, error) {
	r := bufio.NewReader(s.from(at))
	last := byte(0)
	for ; ; at++ {
		c, err := r.ReadByte()
		if errors.Is(err, io.EOF) {
			return s.size, nil
		}
		if err != nil {
			return 0, err
		}
		if c == '{' && strings.IndexByte(",[\n", last) >= 0 && last != 0 {
			v, err := s.value(at)
			if err == nil && known(v) {
				return at, nil
			}
			if err == nil {
				at += int64(len(v)) - 1
				r.Reset(s.from(at + 1))
				c = '}'
			}
		}
		if c == '\n' || !bytes.ContainsAny([]byte{c}, " \t\r") {
			last = c
		}
	}
}

// checkID refuses an id that no session can have.
func checkID(id string) error {
	if id == "" {
		return errors.New("the conversation has no id")
	}
	if checkThreadID(id) != nil {
		return errors.New("the id of the conversation can't be the id of a session")
	}
	return nil
}
